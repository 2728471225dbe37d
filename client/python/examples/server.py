"""Starts mlx-lm's server with accelerated models, and asks it something: ``python server.py MODEL PROMPT``."""

import json
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request


def ask(port: int, prompt: str) -> str:
    """One completion, as any OpenAI client would ask for it."""
    body = json.dumps({"prompt": prompt, "max_tokens": 16, "temperature": 0.0}).encode()
    url = f"http://127.0.0.1:{port}/v1/completions"
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=300) as answer:
        return str(json.load(answer)["choices"][0]["text"])


def main(model: str, prompt: str) -> None:
    """Prints the completion."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # For a server of one's own: python -m fusiond.mlx_lm server --model MODEL
    command = [sys.executable, "-m", "fusiond.mlx_lm", "server", "--model", model, "--port", str(port)]
    server = subprocess.Popen(command)
    try:
        while server.poll() is None:
            try:
                print(ask(port, prompt))
                return
            except urllib.error.URLError:
                time.sleep(0.2)
        sys.exit(f"the server ended with {server.returncode}")
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
