#!/usr/bin/python3 -B
"""Runs the commands of docs/two_machines.md on two emulated hosts, each with its own /srv.  Needs root, ip and tc."""

import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.abspath("benchmarks/two_hosts"))
import namespaces

with open("docs/two_machines.md", encoding="utf-8") as f:
    PAGE = f.read()
COMMANDS = re.findall(r"^    host-[ab]:/srv/job\$ (\./tandem-run .*)$", PAGE, re.MULTILINE)
REJECTED = "the ranks do not share the checkpoint folder '/srv/shared/checkpoints'"


class TwoMachinesTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        os.mkdir(f"{self.folder}/shared")
        subprocess.run(["tools/draw_images/draw_images", self.folder, "--train", "200", "--val", "10", "--size", "32"],
                       check=True, stdout=subprocess.DEVNULL)
        for host in range(2):
            shutil.copytree(f"{self.folder}/train", f"{self.folder}/{host}/images")
            os.mkdir(f"{self.folder}/{host}/job")
            os.mkdir(f"{self.folder}/{host}/shared")
            shutil.copy("distributed/launch/tandem-run", f"{self.folder}/{host}/job")
            shutil.copy("tests/docs/two_machines", f"{self.folder}/{host}/job/train")

    def start(self, commands, share):
        """Starts a command on each host; their exit statuses, and what they have printed."""
        with namespaces.TwoHosts(rate=None) as hosts, tempfile.TemporaryFile("w+") as log:
            launchers = []
            for host, command in enumerate(commands):
                shared = f"{self.folder}/shared" if share else f"{self.folder}/{host}/shared"
                script = (f"mount --bind {self.folder}/{host} /srv; mount --bind {shared} /srv/shared; cd /srv/job; "
                          + command.replace("10.0.0.1", hosts.address(0)))
                launchers.append(hosts.start(host, ["sh", "-ec", script], stdin=subprocess.DEVNULL, stdout=log, stderr=log))
            statuses = [launcher.wait(120) for launcher in launchers]
            log.seek(0)
            return statuses, log.read()

    def test_training_without_checkpoints_shares_no_folder(self):
        statuses, text = self.start(COMMANDS[:2], share=False)
        self.assertEqual(statuses, [0, 0], text)
        self.assertTrue(os.path.exists(f"{self.folder}/0/results/model.safetensors"), text)
        self.assertFalse(os.path.exists(f"{self.folder}/1/results"), text)

    def test_checkpoints_need_a_shared_folder(self):
        self.assertIn(REJECTED, PAGE)
        statuses, text = self.start(COMMANDS[2:], share=False)
        self.assertEqual(statuses, [1, 1], text)
        self.assertIn(REJECTED, text)
        statuses, text = self.start(COMMANDS[2:], share=True)
        self.assertEqual(statuses, [0, 0], text)
        self.assertEqual(len(glob.glob(f"{self.folder}/shared/checkpoints/*/rank-1.safetensors")), 2, text)


if __name__ == "__main__":
    namespaces.exit_on_signals()
    unittest.main()
