#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A name server that knows SRV records and nothing else, for tests/e2e/servers.sh.

    name_server.py ADDRESS READY-FILE NAME HOST:PORT:PRIORITY:WEIGHT...

Answers questions about _gpsplit._tcp.NAME over UDP at port 53 of ADDRESS; to all others there is no such name. Makes
READY-FILE once it serves.
"""

import socket
import struct
import sys


def labels(name):
    return b"".join(bytes([len(part)]) + part.encode() for part in name.split(".")) + b"\0"


def question_end(message):
    at = 12
    while message[at]:
        at += message[at] + 1
    return at + 5


def main():
    address, ready, name = sys.argv[1:4]
    wanted = labels("_gpsplit._tcp." + name).lower()
    records = []
    for text in sys.argv[4:]:
        host, port, priority, weight = text.split(":")
        data = struct.pack(">HHH", int(priority), int(weight), int(port)) + labels(host)
        records.append(b"\xc0\x0c" + struct.pack(">HHIH", 33, 1, 0, len(data)) + data)
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind((address, 53))
    open(ready, "w").close()
    while True:
        message, client = server.recvfrom(4096)
        end = question_end(message)
        known = message[12 : end - 4].lower() == wanted and message[end - 4 : end - 2] == b"\0\x21"
        flags = 0x8580 if known else 0x8583
        head = message[:2] + struct.pack(">HHHHH", flags, 1, len(records) if known else 0, 0, 0)
        server.sendto(head + message[12:end] + (b"".join(records) if known else b""), client)


if __name__ == "__main__":
    main()
