"""schemathesis on the served description: describe.py BINARY SECONDS. No 5xx, no answer that the description does not allow."""
import os, shutil, subprocess, sys, tempfile
from pathlib import Path

from server import serve

binary, seconds = sys.argv[1], sys.argv[2]
tool = shutil.which("schemathesis", path=str(Path(sys.executable).parent))
checks = "not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,response_schema_conformance"
with serve(binary, "--demo", "--max-model-len", "256", "--cache-tokens", "8192", "-n", "8") as base, tempfile.TemporaryDirectory() as folder:
    command = [tool, "run", base + "/openapi.json", "--checks", checks, "--max-time", seconds, "--continue-on-failure",
               "--request-timeout", "60", "--suppress-health-check", "all"]
    sys.exit(subprocess.run(command, cwd=folder, env={**os.environ, "no_proxy": "127.0.0.1"}).returncode)
