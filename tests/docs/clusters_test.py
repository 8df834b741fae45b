#!/usr/bin/python3 -B
"""Runs the shell blocks of docs/clusters.md on two emulated hosts: a real Slurm, OpenMPI, torchrun and sshd.

Needs root, ip, tc and Debian's packages slurmctld, slurmd, slurm-client, munge, openmpi-bin and openssh-server.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.abspath("benchmarks/two_hosts"))
import namespaces

with open("docs/clusters.md", encoding="utf-8") as f:
    PAGE = f.read()
BLOCKS = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
NAMES = "ab"
PROGRAMS = {name: os.path.abspath(path) for name, path in
            {"train": "examples/mnist/mnist", "tandem-run": "distributed/launch/tandem-run"}.items()}
SLURM_CONF = """ClusterName=test
SlurmctldHost=a({address})
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
AuthType=auth/munge
AuthInfo=socket={folder}/munge,cred_expire=5
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SchedulerParameters=sched_interval=1,bf_interval=1
ReturnToService=2
PartitionName=all Nodes=a,b Default=YES OverSubscribe=FORCE
"""
SSHD_CONF = """HostKey {folder}/key
AuthorizedKeysFile {folder}/key.pub
PidFile none
UsePAM no
StrictModes no
PermitRootLogin yes
"""
SSH_CONF = """Host *
IdentityFile {folder}/key
StrictHostKeyChecking no
UserKnownHostsFile /dev/null
LogLevel ERROR
"""


def block(start):
    """The shell block that begins with `start`."""
    found = [text for text in BLOCKS if text.startswith(start)]
    assert len(found) == 1, f"{len(found)} blocks begin with {start!r}"
    return found[0]


class ClustersTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.hosts = self.enterContext(namespaces.TwoHosts(rate=None))
        os.mkdir(f"{self.folder}/job")
        for name, path in PROGRAMS.items():
            os.symlink(path, f"{self.folder}/job/{name}")
        self.write("hosts", "127.0.0.1 localhost\n" + "".join(f"{self.hosts.address(i)} {n}\n" for i, n in enumerate(NAMES)))

    def write(self, name, text, mode=0o600):
        with open(f"{self.folder}/{name}", "w", encoding="utf-8") as f:
            f.write(text)
        os.chmod(f.name, mode)

    def start(self, host, command, **options):
        """Starts a command in a host's network, with a host name, /etc/hosts and /run of its own."""
        # Not by `ip netns exec`, whose /sys lacks the control groups that slurmd needs.
        script = (f"hostname {NAMES[host]}; mount --bind {self.folder}/hosts /etc/hosts; mount -t tmpfs tmpfs /run; "
                  'mkdir -m 755 /run/sshd; exec "$@"')
        environment = {**os.environ, "SLURM_CONF": f"{self.folder}/slurm.conf", "PATH": f"{self.folder}/bin:{os.environ['PATH']}",
                       "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", **options.pop("variables", {})}
        return subprocess.Popen(["nsenter", f"--net=/run/netns/{self.hosts.names[host]}", "unshare", "--mount", "--uts", "sh",
                                 "-ec", script, "sh", *command],
                                env=environment, cwd=f"{self.folder}/job", stdin=subprocess.DEVNULL, **options)

    def start_daemon(self, host, *command):
        log = self.enterContext(open(f"{self.folder}/daemons.log", "a"))
        process = self.start(host, [shutil.which(command[0]), *command[1:]], stdout=log, stderr=log)
        self.addCleanup(process.wait, 30)  # after terminate
        self.addCleanup(process.terminate)

    def run_block(self, text, host=0):
        """Runs a shell block on a host; returns its output."""
        with self.start(host, ["sh", "-ec", text], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as shell:
            output = shell.communicate(timeout=300)[0]
        self.assertEqual(shell.returncode, 0, output)
        return output

    def weights(self, out):
        with open(f"{self.folder}/job/{out}/model.safetensors", "rb") as f:
            return hashlib.sha256(f.read()).hexdigest()

    def expect_same_weights(self, out, num_ranks):
        """Compares the weights in `out` with those of tandem's own launcher."""
        self.run_block(f"./train --nproc {num_ranks} --max-steps 20 --out own")
        self.assertEqual(self.weights(out), self.weights("own"))

    def start_slurm(self):
        nodes = "".join(f"NodeName={n} NodeAddr={self.hosts.address(i)} CPUs={os.cpu_count()} State=UNKNOWN\n"
                        for i, n in enumerate(NAMES))
        self.write("slurm.conf", SLURM_CONF.format(folder=self.folder, address=self.hosts.address(0)) + nodes)
        self.write("munge.key", os.urandom(512).hex(), 0o400)
        self.start_daemon(0, "munged", "--foreground", "--force", *(f"--{name}={self.folder}/{path}" for name, path in [
            ("key-file", "munge.key"), ("socket", "munge"), ("pid-file", "munge.pid"), ("log-file", "munge.log"),
            ("seed-file", "munge.seed")]))
        self.start_daemon(0, "slurmctld", "-D", "-i")
        for host, name in enumerate(NAMES):
            self.start_daemon(host, "slurmd", "-D", "-N", name)
        self.wait_until(lambda: self.slurm("sinfo", "-h", "-o", "%D %t") == "2 idle", 60, "the nodes are not idle")

    def wait_until(self, condition, seconds, otherwise):
        deadline = time.monotonic() + seconds
        while not condition():
            with open(f"{self.folder}/daemons.log", encoding="utf-8") as f:
                self.assertLess(time.monotonic(), deadline, f"{otherwise}\n{f.read()}")
            time.sleep(0.5)

    def slurm(self, *command):
        done = subprocess.run(["nsenter", f"--net=/run/netns/{self.hosts.names[0]}", *command], capture_output=True, text=True,
                              env={**os.environ, "SLURM_CONF": f"{self.folder}/slurm.conf"}, timeout=60)
        return done.stdout.strip()

    def test_slurm_starts_several_ranks_on_each_node(self):
        self.start_slurm()
        self.run_block(block("srun "))
        self.expect_same_weights("srun", 4)

    def test_slurm_requeues_to_the_same_bytes(self):
        self.start_slurm()
        for epochs in (8, 16, 32, 64, 128):  # until the training takes longer than Slurm takes to send the signal
            scripts = [text.replace("--epochs 8 ", f"--epochs {epochs} ")
                       for text in (block("#!/bin/sh"), block("./train --nproc 2"))]
            self.write("job/train.sh", scripts[0], 0o700)
            job = re.search(r"\d+", self.run_block(block("sbatch")))[0]
            state = {}

            def has_ended():
                text = self.slurm("scontrol", "show", "job", job)
                state.update(pair.split("=", 1) for pair in text.split() if "=" in pair)
                if state.get("Restarts") == "1" and state["TimeLimit"] == "00:01:00":
                    self.slurm("scontrol", "update", f"JobId={job}", "TimeLimit=60")  # one requeue is enough
                return state.get("JobState") in ("COMPLETED", "FAILED", "TIMEOUT", "CANCELLED")

            self.wait_until(has_ended, 300, "the job does not end")
            with open(f"{self.folder}/job/slurm-{job}.out", encoding="utf-8") as f:
                log = f.read()
            self.assertEqual(state["JobState"], "COMPLETED", log)
            if state["Restarts"] != "0":
                break
            shutil.rmtree(f"{self.folder}/job/requeued")
        self.assertIn("stopped by a signal after step", log)
        self.assertIn("resumed from requeued/checkpoints", log)
        output = self.run_block(scripts[1])
        print("\n".join(line for line in (log + output).splitlines()
                        if re.search("stopped by|resumed from|^[0-9a-f]{64} ", line)), flush=True)
        self.assertEqual(self.weights("requeued"), self.weights("uninterrupted"), log)

    def test_mpirun(self):
        self.run_block(block("mpirun -n 2 "))
        self.expect_same_weights("mpirun", 2)

    @unittest.skipUnless(shutil.which("torchrun"), "torchrun is not in PATH")
    def test_torchrun(self):
        self.run_block(block("torchrun "))
        self.expect_same_weights("torchrun", 2)

    def test_ssh(self):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", f"{self.folder}/key"], check=True)
        self.write("sshd.conf", SSHD_CONF.format(folder=self.folder))
        self.write("ssh.conf", SSH_CONF.format(folder=self.folder))
        os.mkdir(f"{self.folder}/bin")
        self.write("bin/ssh", f'#!/bin/sh\nexec {shutil.which("ssh")} -F {self.folder}/ssh.conf "$@"\n', 0o700)
        self.start_daemon(1, "sshd", "-D", "-e", "-f", f"{self.folder}/sshd.conf")
        self.wait_until(lambda: self.start(0, ["ssh", "b", "true"]).wait(30) == 0, 30, "no sshd")
        self.run_block(block("./tandem-run -H"))
        self.expect_same_weights("ssh", 8)

    def test_pods_start_before_their_names_resolve(self):
        variables = dict(re.findall(r'- \{name: (\w+), value: "?([\w.-]+)"?\}', PAGE))
        self.assertEqual(sorted(variables), ["MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE"])
        variables["KUBERNETES_SERVICE_HOST"] = "10.96.0.1"
        # An indexed Job; a PyTorchJob, whose older operator gives localhost to the master.
        for addresses in [variables["MASTER_ADDR"]] * 2, ["localhost", "train-master-0"]:
            with open(f"{self.folder}/ranks.log", "w+", encoding="utf-8") as log:
                ranks = [self.start(rank, ["./train", "--max-steps", "20", "--out", "pods"], stdout=log, stderr=log,
                                    variables={**variables, "MASTER_ADDR": addresses[rank], "RANK": str(rank)}) for rank in range(2)]
                time.sleep(3)
                with open(f"{self.folder}/hosts", "a", encoding="utf-8") as f:  # in place: it is mounted
                    f.write(f"{self.hosts.address(0)} {addresses[1]}\n")
                statuses = [rank.wait(120) for rank in ranks]
                log.seek(0)
                self.assertEqual(statuses, [0, 0], log.read())
            self.expect_same_weights("pods", 2)
            shutil.rmtree(f"{self.folder}/job/pods")


if __name__ == "__main__":
    namespaces.exit_on_signals()
    unittest.main()
