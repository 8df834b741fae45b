"""Packs gpu_check and the programs that it runs into one file that Python executes on a machine with a GPU."""

import lzma
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipapp
import zipfile

from gpu_checks import smoke

TOOLS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PROGRAMS = {
    "gpu_tests": "tests/gpu",
    "gpu_benchmark": "benchmarks/gpu/gpu",
    "train_step": "benchmarks/train_step",
    "mnist": "examples/mnist/mnist",
    "language_model": "examples/language_model/language_model",
    "resnet_cifar": "examples/resnet_cifar/resnet_cifar",
    "collectives": "benchmarks/collectives/collectives",
    **{name: f"tests/distributed/{name}" for name in smoke.GROUP_TESTS},
}
TORCH_STEP = "benchmarks/vs_pytorch/torch_step.py"
ARCHIVE = "programs.tar.xz"
# The programs contain equal code, so the dictionary must be larger than a program. Higher presets save 5 % of the size
# and take several times as long.
XZ = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 64 << 20}]
LIMIT_MIB = 25
CONTAINER = bytes.fromhex("50ed55ba")  # its first bytes


def has_gpu_code(path):
    """Whether nvcc's section of a program begins with a container of GPU code."""
    sections = subprocess.run(["readelf", "-SW", path], check=True, text=True, stdout=subprocess.PIPE).stdout
    section = re.search(r"\] \.nv_fatbin +\S+ +\S+ +(\S+)", sections)
    if section is None:
        return False
    with open(path, "rb") as file:
        file.seek(int(section.group(1), 16))
        return file.read(4) == CONTAINER


def libraries_of(program):
    """Maps names to paths of the shared libraries that a program needs and another machine may lack: all except the C and C++
    libraries, which must be the other machine's, and NVIDIA's."""
    listed = subprocess.run(["ldd", program], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False).stdout
    found = {}
    for name, path in re.findall(r"^\s*(\S+) => (/\S+|not found)", listed, re.MULTILINE):
        if not re.match(r"(lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+|cu\w*|nv\w*|nccl)|ld-linux.*)\.so", name):
            found[name] = path
    return found


def stage(folder):
    """Copies the stripped programs, the libraries that they need, and torch_step.py into a folder."""
    root = os.path.dirname(TOOLS)
    built = {name: os.path.join(root, "out/bin", path) for name, path in PROGRAMS.items()}
    missing = [PROGRAMS[name] for name in built if not os.path.exists(built[name])]
    if missing:
        sys.exit(f"gpu_check: not built: {' '.join(missing)}; --help has the build command")
    without = [PROGRAMS[name] for name, path in built.items() if not has_gpu_code(path)]
    if without:
        sys.exit(f"gpu_check: no GPU code in {' '.join(without)}; build with --config=cuda (--help has the build command)")
    libraries = {}
    for path in built.values():
        libraries.update(libraries_of(path))
    lost = sorted(name for name, path in libraries.items() if path == "not found")
    if lost:
        sys.exit(f"gpu_check: libraries not found: {' '.join(lost)}")
    os.mkdir(os.path.join(folder, "lib"))
    for name, path in libraries.items():
        shutil.copy(path, os.path.join(folder, "lib", name))
    for name, path in built.items():
        subprocess.run(["strip", "-o", os.path.join(folder, name), path], check=True)
    shutil.copy(os.path.join(root, TORCH_STEP), folder)


def pack(folder, target):
    """Creates an executable Python archive with gpu_check and the files of a folder."""
    with tempfile.TemporaryDirectory(prefix="gpu_check.") as source:
        shutil.copy(os.path.join(TOOLS, "gpu_check"), os.path.join(source, "__main__.py"))
        os.mkdir(os.path.join(source, "gpu_checks"))
        for name in os.listdir(os.path.join(TOOLS, "gpu_checks")):
            if name.endswith(".py"):
                shutil.copy(os.path.join(TOOLS, "gpu_checks", name), os.path.join(source, "gpu_checks"))
        with lzma.open(os.path.join(source, ARCHIVE), "wb", filters=XZ) as stream, tarfile.open(fileobj=stream, mode="w") as tar:
            for name in sorted(os.listdir(folder)):
                tar.add(os.path.join(folder, name), name)
        zipapp.create_archive(source, target, interpreter="/usr/bin/env python3")


def unpack(program, folder):
    """Extracts the files of an archive of pack() into a folder."""
    with zipfile.ZipFile(program) as file, file.open(ARCHIVE) as stream, tarfile.open(fileobj=stream, mode="r|xz") as tar:
        tar.extractall(folder, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))


def collect(target, limit_mib):
    """Creates the archive; exits with an error if it is larger than the limit."""
    with tempfile.TemporaryDirectory(prefix="gpu_check.") as folder:
        files, packed = os.path.join(folder, "files"), os.path.join(folder, "packed")
        os.mkdir(files)
        stage(files)
        pack(files, packed)
        sizes = {os.path.relpath(os.path.join(path, name), files): os.path.getsize(os.path.join(path, name)) / 2**20
                 for path, _, names in os.walk(files) for name in names}
        mib = os.path.getsize(packed) / 2**20
        if mib > limit_mib:
            largest = sorted(sizes, key=sizes.get, reverse=True)[:5]
            sys.exit(f"gpu_check: {target} would have {mib:.1f} MiB (limit {limit_mib:g} MiB); the largest members, before compression: "
                     f"{', '.join(f'{name} {sizes[name]:.1f} MiB' for name in largest)}; build for fewer architectures (see --help), "
                     "or raise --limit-mib")
        shutil.copy(packed, target)
        os.chmod(target, 0o755)
    print(f"gpu_check: {target}, {mib:.1f} MiB: {len(PROGRAMS)} programs, {len(sizes)} files, {sum(sizes.values()):.0f} MiB unpacked")
