"""Times one training case in PyTorch, the counterpart of //benchmarks:train_step, with the same weights and data.

    python3 torch_step.py CASE STATE.safetensors [--compile] [--channels-last] [--fused] [--threads N] [--steps N]
                          [--device cuda] [--amp] [--tf32]

Prints one line of JSON: the losses of ten untimed steps, then the times of `--steps` more.
"""

import argparse
import json
import statistics
import struct
import time

import torch
from torch import nn
from torch.nn import functional as F

UNTIMED = 10


# --- models: parameter names as in models/ ---------------------------------------------------------------------------


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2, self.fc3 = nn.Linear(784, 1024), nn.Linear(1024, 1024), nn.Linear(1024, 10)

    def forward(self, images):
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(images.flatten(1))))))


class LeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 32, 5), nn.Conv2d(32, 64, 5)
        self.fc1, self.fc2 = nn.Linear(1024, 128), nn.Linear(128, 10)

    def forward(self, images):
        h = F.max_pool2d(F.relu(self.conv1(images)), 2)
        h = F.max_pool2d(F.relu(self.conv2(h)), 2)
        return self.fc2(F.relu(self.fc1(h.flatten(1))))


class ResidualBlock(nn.Module):
    def __init__(self, in_channels, out_channels, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, out_channels, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(out_channels)
        self.conv2 = nn.Conv2d(out_channels, out_channels, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(out_channels)
        self.downsample = None
        if stride != 1 or in_channels != out_channels:
            self.downsample = nn.Sequential(
                nn.Conv2d(in_channels, out_channels, 1, stride, bias=False), nn.BatchNorm2d(out_channels))

    def forward(self, x):
        h = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(h + (x if self.downsample is None else self.downsample(x)))


class ResNet18(nn.Module):
    def __init__(self, width=64, classes=10):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width)
        channels = width
        for layer, stride in enumerate((1, 2, 2, 2), 1):
            out = stride * channels
            setattr(self, f"layer{layer}", nn.Sequential(ResidualBlock(channels, out, stride), ResidualBlock(out, out, 1)))
            channels = out
        self.fc = nn.Linear(channels, classes)

    def forward(self, images):
        h = self.layer1(F.relu(self.bn1(self.conv1(images))))
        h = F.adaptive_avg_pool2d(self.layer4(self.layer3(self.layer2(h))), 1)
        return self.fc(h.flatten(1))


class BottleneckBlock(nn.Module):
    def __init__(self, in_channels, width, stride):
        super().__init__()
        out = 4 * width
        self.conv1, self.bn1 = nn.Conv2d(in_channels, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = nn.Conv2d(width, out, 1, bias=False), nn.BatchNorm2d(out)
        self.downsample = None
        if stride != 1 or in_channels != out:
            self.downsample = nn.Sequential(nn.Conv2d(in_channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x):
        h = F.relu(self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))))
        return F.relu(self.bn3(self.conv3(h)) + (x if self.downsample is None else self.downsample(x)))


class ResNet50(nn.Module):
    def __init__(self, classes=1000):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64)
        channels = 64
        for group, blocks in enumerate((3, 4, 6, 3)):
            layer = nn.Sequential()
            for block in range(blocks):
                layer.append(BottleneckBlock(channels, 64 << group, 2 if block == 0 and group > 0 else 1))
                channels = 4 * (64 << group)
            setattr(self, f"layer{group + 1}", layer)
        self.fc = nn.Linear(channels, classes)

    def forward(self, images):
        h = F.max_pool2d(F.relu(self.bn1(self.conv1(images))), 3, 2, 1)
        h = F.adaptive_avg_pool2d(self.layer4(self.layer3(self.layer2(self.layer1(h)))), 1)
        return self.fc(h.flatten(1))


class ConvNormRelu6(nn.Sequential):
    def __init__(self, in_channels, out_channels, kernel, stride=1, groups=1):
        super().__init__(
            nn.Conv2d(in_channels, out_channels, kernel, stride, (kernel - 1) // 2, groups=groups, bias=False),
            nn.BatchNorm2d(out_channels), nn.ReLU6(inplace=True))


class InvertedResidual(nn.Module):
    def __init__(self, in_channels, out_channels, stride, expansion):
        super().__init__()
        width = expansion * in_channels
        layers = [ConvNormRelu6(in_channels, width, 1)] if expansion != 1 else []
        self.conv = nn.Sequential(*layers, ConvNormRelu6(width, width, 3, stride, width),
                                  nn.Conv2d(width, out_channels, 1, bias=False), nn.BatchNorm2d(out_channels))
        self.is_residual = stride == 1 and in_channels == out_channels

    def forward(self, x):
        return self.conv(x) + x if self.is_residual else self.conv(x)


class MobileNetV2(nn.Module):
    def __init__(self, classes=10):
        super().__init__()
        layers, channels = [ConvNormRelu6(3, 32, 3, 2)], 32
        for expansion, out, blocks, stride in ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1),
                                               (6, 160, 3, 2), (6, 320, 1, 1)):
            for block in range(blocks):
                layers.append(InvertedResidual(channels, out, stride if block == 0 else 1, expansion))
                channels = out
        self.features = nn.Sequential(*layers, ConvNormRelu6(channels, 1280, 1))
        self.classifier = nn.Sequential(nn.Dropout(0), nn.Linear(1280, classes))

    def forward(self, images):
        return self.classifier(F.adaptive_avg_pool2d(self.features(images), 1).flatten(1))


class DcganGenerator(nn.Module):
    def __init__(self, latent=100, width=64, channels=3, levels=4):
        super().__init__()
        out = width << (levels - 1)
        layers = [nn.ConvTranspose2d(latent, out, 4, 1, 0, bias=False)]
        for level in range(levels, 0, -1):
            after = out // 2 if level > 1 else channels
            layers += [nn.BatchNorm2d(out), nn.ReLU(inplace=True), nn.ConvTranspose2d(out, after, 4, 2, 1, bias=False)]
            out = after
        self.main = nn.Sequential(*layers, nn.Tanh())

    def forward(self, noise):
        return self.main(noise)


class DcganDiscriminator(nn.Module):
    def __init__(self, width=64, channels=3, levels=4):
        super().__init__()
        layers = [nn.Conv2d(channels, width, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, inplace=True)]
        for level in range(1, levels):
            layers += [nn.Conv2d(width, 2 * width, 4, 2, 1, bias=False), nn.BatchNorm2d(2 * width),
                       nn.LeakyReLU(0.2, inplace=True)]
            width *= 2
        self.main = nn.Sequential(*layers, nn.Conv2d(width, 1, 4, bias=False))

    def forward(self, images):
        return self.main(images).flatten(1)


class Dcgan(nn.Module):
    def __init__(self, latent=100, width=64, channels=3, levels=4):
        super().__init__()
        self.generator = DcganGenerator(latent, width, channels, levels)
        self.discriminator = DcganDiscriminator(width, channels, levels)

    def forward(self, noise):
        return self.discriminator(self.generator(noise))


class UNetBlock(nn.Sequential):
    def __init__(self, in_channels, out_channels, groups):
        layers = []
        for channels in (in_channels, out_channels):
            layers += [nn.Conv2d(channels, out_channels, 3, padding=1), nn.GroupNorm(groups, out_channels), nn.SiLU()]
        super().__init__(*layers)


class UNet(nn.Module):
    def __init__(self, channels=3, width=32, levels=3, groups=8):
        super().__init__()
        self.levels, before = levels, channels
        for level in range(levels):
            setattr(self, f"down{level}", UNetBlock(before, width << level, groups))
            before = width << level
        for level in reversed(range(levels - 1)):
            setattr(self, f"up{level}", UNetBlock(before + (width << level), width << level, groups))
            before = width << level
        self.out = nn.Conv2d(before, channels, 1)

    def forward(self, x):
        results = []
        for level in range(self.levels):
            x = getattr(self, f"down{level}")(F.max_pool2d(x, 2) if results else x)
            results.append(x)
        for level in reversed(range(self.levels - 1)):
            same_level = results[level]
            x = F.interpolate(x, size=same_level.shape[2:], mode="bilinear")
            x = getattr(self, f"up{level}")(torch.cat([same_level, x], 1))
        return self.out(x)


class LstmLanguageModel(nn.Module):
    def __init__(self, vocabulary=65, width=512, layers=2):
        super().__init__()
        self.encoder, self.rnn = nn.Embedding(vocabulary, width), nn.LSTM(width, width, layers, batch_first=True)
        self.decoder = nn.Linear(width, vocabulary)

    def forward(self, tokens):
        return self.decoder(self.rnn(self.encoder(tokens))[0])


class Gpt2Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.c_attn, self.c_proj, self.heads = nn.Linear(width, 3 * width), nn.Linear(width, width), heads

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (part.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
                   for part in self.c_attn(x).split(width, 2))
        h = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(h.transpose(1, 2).reshape(batch, length, width))


class Gpt2Mlp(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.c_fc, self.c_proj = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return self.c_proj(F.gelu(self.c_fc(x), approximate="tanh"))


class Gpt2Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.ln_1, self.attn = nn.LayerNorm(width), Gpt2Attention(width, heads)
        self.ln_2, self.mlp = nn.LayerNorm(width), Gpt2Mlp(width)

    def forward(self, x):
        h = x + self.attn(self.ln_1(x))
        return h + self.mlp(self.ln_2(h))


class Gpt2Model(nn.Module):
    def __init__(self, vocabulary, context, layers, heads, width):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.h = nn.Sequential(*[Gpt2Block(width, heads) for _ in range(layers)])
        self.ln_f = nn.LayerNorm(width)

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1], device=tokens.device))
        return self.ln_f(self.h(x))


class Gpt2(nn.Module):
    def __init__(self, vocabulary, context, layers, heads, width):
        super().__init__()
        self.transformer = Gpt2Model(vocabulary, context, layers, heads, width)
        self.lm_head = nn.Linear(width, vocabulary, bias=False)
        self.lm_head.weight = self.transformer.wte.weight

    def forward(self, tokens):
        return self.lm_head(self.transformer(tokens))


def sgd(**options):
    return lambda parameters, **extra: torch.optim.SGD(parameters, momentum=0.9, **options, **extra)


def adam(**options):
    return lambda parameters, **extra: torch.optim.Adam(parameters, **options, **extra)


def adamw(parameters, **extra):
    return torch.optim.AdamW(parameters, lr=1e-3, **extra)


# Factory of the model, factory of the optimizer, and learning rate of the steps whose losses are compared. resnet18
# needs a smaller one there: at 0.1 PyTorch's own eager and channels-last losses differ by 10 % after five steps. So do
# mobilenet-v2, dcgan and unet.
CASES = {
    "mlp": (Mlp, sgd(lr=0.01), 0.01),
    "lenet": (LeNet, sgd(lr=0.01), 0.01),
    "resnet18": (ResNet18, sgd(lr=0.1, weight_decay=5e-4), 1e-4),
    "mobilenet-v2": (MobileNetV2, sgd(lr=0.01, weight_decay=4e-5), 1e-6),
    "dcgan": (Dcgan, adam(lr=2e-4, betas=(0.5, 0.999)), 1e-6),
    "unet": (UNet, adam(lr=1e-3), 1e-4),
    "lstm": (LstmLanguageModel, adam(lr=1e-3), 1e-3),
    "gpt-small": (lambda: Gpt2(65, 128, 4, 4, 128), adamw, 1e-3),
    "gpt-384": (lambda: Gpt2(65, 256, 6, 6, 384), adamw, 1e-3),
    "gpt2-124m-4": (lambda: Gpt2(50304, 1024, 12, 12, 768), adamw, 1e-3),
    "gpt2-124m-64": (lambda: Gpt2(50304, 1024, 12, 12, 768), adamw, 1e-3),
    "resnet50-256": (ResNet50, sgd(lr=0.1, weight_decay=1e-4), 1e-4),
}

# --- weights and data -----------------------------------------------------------------------------------------------

DTYPES = {"F32": torch.float32, "I64": torch.int64}


def load_safetensors(path):
    """Reads tensors by name; aliases of tied parameters, which are in the metadata, are ignored."""
    with open(path, "rb") as file:
        content = file.read()
    length = struct.unpack("<Q", content[:8])[0]
    tensors = {}
    for name, entry in json.loads(content[8:8 + length]).items():
        if name == "__metadata__":
            continue
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        flat = torch.frombuffer(bytearray(content[begin:end]), dtype=DTYPES[entry["dtype"]])
        tensors[name] = flat.reshape(entry["shape"]).clone()
    return tensors


def load_model(model, state):
    weights = {name[len("model."):]: tensor for name, tensor in state.items() if name.startswith("model.")}
    result = model.load_state_dict(weights, strict=False)
    missing = set(result.missing_keys) - {"lm_head.weight"}  # tied to wte.weight
    if missing or result.unexpected_keys:
        raise SystemExit(f"torch_step: missing {sorted(missing)}, unexpected {result.unexpected_keys}")


# --- the step -------------------------------------------------------------------------------------------------------


def peak_resident_mb():
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM")) / 1024


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("case", choices=CASES)
    parser.add_argument("state")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--fused", action="store_true")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--amp", action="store_true")
    parser.add_argument("--tf32", action="store_true")
    args = parser.parse_args()

    torch.set_num_threads(args.threads)
    state = load_safetensors(args.state)
    make_model, make_optimizer, compared_lr = CASES[args.case]
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = args.tf32
    model = make_model()
    load_model(model, state)
    model = model.to(args.device)
    data, target = state["input"].to(args.device), state["target"].to(args.device)
    del state
    if args.channels_last:
        model = model.to(memory_format=torch.channels_last)
        data = data.contiguous(memory_format=torch.channels_last)
    optimizer = make_optimizer(model.parameters(), **({"fused": True} if args.fused else {}))

    def forward(data, target):
        scores = model(data)
        if target.is_floating_point():
            return F.mse_loss(scores, target)
        return F.cross_entropy(scores.reshape(-1, scores.shape[-1]), target.reshape(-1))

    compute_loss = torch.compile(forward) if args.compile else forward

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(args.device, torch.bfloat16, enabled=args.amp):
            loss = compute_loss(data, target)
        loss.backward()
        optimizer.step()
        return loss

    for group in optimizer.param_groups:
        group["lr"], lr = compared_lr, group["lr"]
    losses = [step().item() for _ in range(UNTIMED)]
    for group in optimizer.param_groups:
        group["lr"] = lr
    times = []
    for _ in range(args.steps):
        start = time.perf_counter()
        step()
        if args.device == "cuda":
            torch.cuda.synchronize()
        times.append(1e3 * (time.perf_counter() - start))
    print(json.dumps({"step_ms": statistics.median(times), "min_ms": min(times), "rss_mb": peak_resident_mb(),
                      "losses": losses, "version": torch.__version__}))


if __name__ == "__main__":
    main()
