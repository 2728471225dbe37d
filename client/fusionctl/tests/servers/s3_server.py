"""moto's S3 on a free port of loopback, with an empty bucket "team". Prints its address; ends when its standard input does."""

import logging
import os
import sys

import boto3
from moto.server import ThreadedMotoServer

logging.getLogger("werkzeug").setLevel(logging.ERROR)
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
host, port = server.get_host_and_port()
address = f"http://{host}:{port}"
os.environ.update(AWS_ACCESS_KEY_ID="someone", AWS_SECRET_ACCESS_KEY="something")
boto3.client("s3", endpoint_url=address, region_name="us-east-1").create_bucket(Bucket="team")
print(address, flush=True)
sys.stdin.read()
