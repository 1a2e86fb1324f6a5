#!/usr/bin/env python3
"""Draws loss.csv, the log of train.py, as an SVG: the loss of training and of the held-out text over the tokens read."""

import argparse
import csv
import math

WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 720, 360, 56, 40, 24, 16


class Axes:
    """Tokens in millions to the right, the loss upwards, by its logarithm."""

    def __init__(self, tokens, low, high):
        self.tokens, self.low, self.high = tokens, math.log(low), math.log(high)

    def x(self, tokens):
        return LEFT + (WIDTH - LEFT - RIGHT) * tokens / self.tokens

    def y(self, loss):
        part = (math.log(loss) - self.low) / (self.high - self.low)
        return HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * part


def line(axes, points, colour, name):
    path = " ".join(f"{axes.x(t):.1f},{axes.y(v):.1f}" for t, v in points)
    t, v = points[-1]
    return (f'<polyline fill="none" stroke="{colour}" stroke-width="1.5" points="{path}"/>\n'
            f'<text x="{axes.x(t) - 4:.0f}" y="{axes.y(v) - 8:.0f}" fill="{colour}" text-anchor="end">'
            f"{name} {v:.3f}</text>\n")


def grid(axes):
    out = ""
    for loss in (0.1, 0.15, 0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 5, 8):
        if axes.low <= math.log(loss) <= axes.high:
            y = axes.y(loss)
            out += f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="#ddd"/>\n'
            out += f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end" fill="#555">{loss:g}</text>\n'
    step = max(1, round(axes.tokens / 8e6))
    for million in range(0, int(axes.tokens / 1e6) + 1, step):
        x = axes.x(million * 1e6)
        out += f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle" fill="#555">{million}M</text>\n'
    return out


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("log", help="loss.csv")
    p.add_argument("-o", "--output", required=True)
    args = p.parse_args()
    with open(args.log, encoding="utf-8") as f:
        log = list(csv.DictReader(f))
    trained = [(float(row["tokens"]), float(row["loss"])) for row in log]
    heldout = [(float(row["tokens"]), float(row["heldout"])) for row in log if row["heldout"]]
    losses = [v for _, v in trained + heldout]
    axes = Axes(trained[-1][0], min(losses) * 0.9, max(losses))
    with open(args.output, "w", encoding="utf-8") as out:
        out.write(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
                  f'font-size="12">\n<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>\n')
        out.write(grid(axes))
        out.write(f'<text x="{LEFT}" y="16" fill="#333">loss, nats a token, over the tokens read</text>\n')
        out.write(line(axes, trained, "#8ab", "training"))
        out.write(line(axes, heldout, "#c30", "held out"))
        out.write("</svg>\n")


if __name__ == "__main__":
    main()
