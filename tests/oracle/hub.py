#!/usr/bin/env python3
"""Does `huggingface_hub` find what `shardwright pull` has fetched, offline, and the reverse? `hub.py BINARY MODEL`."""

import hashlib
import http.server
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading

COMMIT = "0123456789abcdef0123456789abcdef01234567"
REPO, NAME = "o/tiny", "sub/m-Q8_0.gguf"


class Hub(http.server.BaseHTTPRequestHandler):
    """As much of a hub as both clients ask for; the content comes from another host name, as from a CDN."""

    def do_GET(self):
        data, fetched = self.server.data, self.server.fetched
        size, sha = len(data), hashlib.sha256(data).hexdigest()
        if "/revision/main" in self.path:
            self.tell(200, json.dumps({"sha": COMMIT, "id": REPO, "siblings": [{"rfilename": NAME}], "tags": []}))
        elif f"/tree/{COMMIT}" in self.path:
            lfs = {"oid": sha, "size": size, "pointerSize": 135}
            self.tell(200, json.dumps([{"type": "file", "path": NAME, "size": size, "oid": "0" * 40, "lfs": lfs}]))
        elif "/resolve/" in self.path:
            at = f"http://localhost:{self.server.server_port}/cdn"
            linked = {"X-Linked-Etag": f'"{sha}"', "X-Linked-Size": size, "X-Repo-Commit": COMMIT}
            self.tell(302, "", Location=at, **linked)
        elif self.path == "/cdn":
            fetched.append(self.command)
            self.tell(200, data)
        else:
            self.tell(404, "")

    do_HEAD = do_GET

    def tell(self, status, body, **headers):
        body = body if isinstance(body, bytes) else body.encode()
        self.send_response(status)
        for name, value in {"Content-Length": len(body), "Content-Type": "application/json", **headers}.items():
            self.send_header(name, str(value))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, *_):
        pass


def ask(command, home, endpoint, offline):
    env = {k: v for k, v in os.environ.items() if not k.startswith("HF_")}
    env |= {"HF_HOME": home, "HF_ENDPOINT": endpoint, "HF_HUB_OFFLINE": str(int(offline))}
    out = subprocess.run(command, env=env, stdout=subprocess.PIPE, check=True, text=True).stdout
    return out.strip()


def main(binary, model):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    server.data, server.fetched = pathlib.Path(model).read_bytes(), []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    endpoint = f"http://127.0.0.1:{server.server_port}"
    download = f"from huggingface_hub import hf_hub_download as d; print(d({REPO!r}, {NAME!r}))"
    snapshot = f"from huggingface_hub import snapshot_download as d; print(d({REPO!r}) + '/' + {NAME!r})"
    ours = [[binary, "pull", REPO], [binary, "pull", f"{REPO}:q8_0"]]
    theirs = [[sys.executable, "-c", code] for code in (download, snapshot)]
    for first, second in ((ours, theirs), (theirs, ours)):
        for fetch in first:
            with tempfile.TemporaryDirectory() as home:
                server.fetched.clear()
                path = ask(fetch, home, endpoint, False)
                assert pathlib.Path(path).read_bytes() == server.data, path
                assert server.fetched == ["GET"], server.fetched
                for offline in (True, False):
                    for find in second:
                        found = ask(find, home, endpoint, offline)
                        assert os.path.samefile(found, path), (find, found, path)
                assert server.fetched == ["GET"], "fetched again"
    print("both find what the other fetched, offline and online")


if __name__ == "__main__":
    main(*sys.argv[1:])
