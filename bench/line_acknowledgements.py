#!/usr/bin/env python3
"""Why a ring on a line of hosts takes longer over TCP than its bytes need: a model of its packets and acknowledgements.

Usage: line_acknowledgements.py [--ranks 4,6] [--size 2MiB-in-bytes] [--window BYTES,...]; no root, a few seconds.
Ranks 0, 1, ... are joined by cables of 200 Mbit/s, and pass packets on. The ring's messages from rank r to r + 1 have the cables
of one direction for themselves; the message from the last rank to the first has all cables of the other direction for itself.
No link is shared, so links alone predict 2 (N-1)/N of the buffer over one cable's rate. But acknowledgements of the last message
wait behind the data of the others at every cable, and a sender with a window of bytes waits for them.
Prints, for every window, the time of the whole ring and how much longer that is than the links need.
"""

import argparse
import heapq

RATE, DELAY = 25e6, 25e-6  # bytes/s and seconds of a cable's direction
PAYLOAD, HEADERS = 1448, 66  # bytes of a packet; an acknowledgement has headers alone
GOODPUT = 0.957  # as bench/link_wirings.py counts it


class Flow:
    def __init__(self, src, dst):
        step = 1 if src < dst else -1
        self.to, self.cables = dst, [(at, at + step) for at in range(src, dst, step)]
        self.sent = self.acknowledged = self.received = 0  # packets
        self.messages = 1  # that the sender has to send so far: it sends on what it has received


class Line:
    def __init__(self, ranks, size, window):
        self.steps, self.packets = 2 * (ranks - 1), int(size / ranks // PAYLOAD) + 1
        self.window = window
        self.flows = [Flow(rank, (rank + 1) % ranks) for rank in range(ranks)]
        self.free = {}  # by direction of a cable: when it has sent all that waits
        self.events = []
        self.count = 0

    def cross(self, now, flow, number, cables, done, size):
        begin = max(now, self.free.get(cables[done], 0))
        self.free[cables[done]] = begin + size / RATE
        self.count += 1  # ties in the order of creation
        heapq.heappush(self.events, (begin + size / RATE + DELAY, self.count, flow, number, cables, done + 1, size))

    def send(self, now, flow):
        most = min(flow.messages, self.steps) * self.packets
        while flow.sent < most and (flow.sent + 1 - flow.acknowledged) * PAYLOAD <= self.window:
            flow.sent += 1
            self.cross(now, flow, flow.sent, flow.cables, 0, PAYLOAD + HEADERS)

    def receive(self, now, flow):
        flow.received += 1
        whole = flow.received % self.packets == 0
        if whole or flow.received % 2 == 0:
            back = [(b, a) for a, b in reversed(flow.cables)]
            self.cross(now, flow, flow.received, back, 0, HEADERS)
        if whole:
            on = self.flows[flow.to]
            on.messages = max(on.messages, flow.received // self.packets + 1)
            self.send(now, on)

    def run(self):
        for flow in self.flows:
            self.send(0, flow)
        last = 0
        while self.events:
            now, _, flow, number, cables, done, size = heapq.heappop(self.events)
            if done < len(cables):
                self.cross(now, flow, number, cables, done, size)
            elif size > HEADERS:
                self.receive(now, flow)
                last = now
            else:
                flow.acknowledged = max(flow.acknowledged, number)
                self.send(now, flow)
        return last


def numbers(text):
    return [int(word) for word in text.split(",")]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=numbers, default=[4, 6])
    parser.add_argument("--size", type=int, default=2 << 20)
    parser.add_argument("--window", type=numbers, default=[56 << 10, 1 << 20, 4 << 20])
    options = parser.parse_args()
    for ranks in options.ranks:
        links = 2 * (ranks - 1) / ranks * options.size / (GOODPUT * RATE)
        for window in options.window:
            took = Line(ranks, options.size, window).run()
            print(f"{ranks} ranks, window {window >> 10:5} KiB: {took * 1e3:6.1f} ms, {took / links:.2f} x what the links need")


if __name__ == "__main__":
    main()
