"""Real clients against the demo model: clients.py BINARY NODE_FOLDER. Each client is a process of its own."""
import json, os, subprocess, sys, urllib.request
from pathlib import Path

from server import serve

here = Path(__file__).parent
binary, node = sys.argv[1], Path(sys.argv[2])
with serve(binary, "--demo", "--cache-tokens", "32768") as base:
    name = json.load(urllib.request.urlopen(base + "/v1/models"))["data"][0]["id"]
    failed = 0
    environment = {**os.environ, "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
    for command in (
        [sys.executable, here / "openai_sdk.py", base],
        [sys.executable, here / "anthropic_sdk.py", base, name],
        [sys.executable, here / "others.py", base, name],
        ["node", node / "vercel.mjs", base, name],
        [here / "transcripts.sh", base, name],
    ):
        failed += subprocess.run(command, env=environment).returncode != 0
sys.exit(f"{failed} clients failed" if failed else 0)
