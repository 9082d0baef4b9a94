#!/usr/bin/env python3
"""Draws pictures of the runs that tests/bench/b_deft.sh has recorded:

  scripts/plot_deft.py RUNS times.svg losses.svg

RUNS: its file of runs, one line of JSON each. The first picture has iteration times beside the
planner's. The second has the losses over the iterations: the mean of all seeds, and their range.
The tables of docs/scheduling.md are printed.
"""
import json
import math
import sys

NETS = {"mlp": "MLP", "conv": "convolutional net", "gpt": "GPT of 2 layers"}
SCHEMES = {  # name, colour
    "ddp": ("DDP", "#4477aa"),
    "exact": ("exact gating", "#66aa55"),
    "deft": ("DeFT, one link", "#dd7711"),
    "deft2": ("DeFT, two links", "#aa3377"),
    "deft-preserved": ("DeFT, one link, preserver", "#228899"),
}
STYLE = ("svg{font:12px sans-serif}text{fill:#222}.paper{fill:#fff}.axis{stroke:#888;fill:none}"
         ".grid{stroke:#ddd}.e{text-anchor:end}.m{text-anchor:middle}.h{font-weight:600}"
         ".plan{stroke:#222;stroke-width:2}@media(prefers-color-scheme:dark)"
         "{text{fill:#ddd}.paper{fill:#181818}.grid{stroke:#444}.plan{stroke:#eee}}")


class Picture:
    def __init__(self, title, width, height):
        self.out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
                    f'width="{width}" height="{height}" role="img">',
                    f"<title>{title}</title>", f"<style>{STYLE}</style>",
                    f'<rect class="paper" width="{width}" height="{height}"/>']

    def text(self, x, y, words, kind=""):
        self.out.append(f'<text x="{x:.0f}" y="{y:.0f}" class="{kind}">{words}</text>')

    def path(self, points, kind, more=""):
        line = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        self.out.append(f'<path class="{kind}" d="M{line}"{more}/>')

    def rect(self, x, y, width, height, colour):
        self.out.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" '
                        f'fill="{colour}"/>')

    def legend(self, x, y, schemes):
        for i, scheme in enumerate(schemes):
            self.rect(x, y + 18 * i - 9, 12, 10, SCHEMES[scheme][1])
            self.text(x + 18, y + 18 * i, SCHEMES[scheme][0])

    def save(self, path):
        with open(path, "w") as f:
            f.write("\n".join(self.out + ["</svg>", ""]))


def times(runs):
    """Draws bars, and across each bar a line at the planner's time."""
    nets = [net for net in NETS if any(r["net"] == net for r in runs)]
    p = Picture("Iteration times", 300 * len(nets) + 200, 300)
    most = max(r["ms"] for r in runs)
    for n, net in enumerate(nets):
        left = 60 + 300 * n
        p.text(left, 24, NETS[net], "h")
        for ms in range(0, int(most) + 1, 200):
            p.path([(left, 260 - 220 * ms / most), (left + 240, 260 - 220 * ms / most)], "grid")
            p.text(left - 6, 264 - 220 * ms / most, ms, "e")
        mine = {r["scheme"]: r for r in runs if r["net"] == net}
        for i, (scheme, r) in enumerate(mine.items()):
            x, top = left + 10 + 58 * i, 220 * r["ms"] / most
            p.rect(x, 260 - top, 40, top, SCHEMES[scheme][1])
            p.text(x + 20, 276, f"{r['ms']:.0f}", "m")
            planned = (r.get("expected") if scheme != "ddp"
                       else mine.get("deft", {}).get("expected_ddp"))
            if planned:
                p.path([(x - 5, 260 - 220 * planned / most), (x + 45, 260 - 220 * planned / most)],
                       "plan")
    p.legend(300 * len(nets) + 50, 60, [s for s in SCHEMES if any(r["scheme"] == s for r in runs)])
    p.text(300 * len(nets) + 50, 160, "ms an iteration;")
    p.text(300 * len(nets) + 50, 176, "line: as planned")
    return p


def losses(runs):
    nets = [net for net in NETS if any(r["net"] == net for r in runs)]
    schemes = [s for s in SCHEMES if s != "exact" and any(r["scheme"] == s for r in runs)]
    p = Picture("Losses", 330 * len(nets) + 220, 330)
    for n, net in enumerate(nets):
        mine = [r for r in runs if r["net"] == net]
        most, least = max(max(r["loss"]) for r in mine), min(min(r["loss"]) for r in mine)
        least, most, left = math.log(max(least, 1e-4)), math.log(most), 60 + 330 * n
        iterations = mine[0]["iterations"]

        def at(i, loss, points):
            return (left + 260 * (i + .5) / points,
                    280 - 240 * (math.log(max(loss, 1e-4)) - least) / (most - least))

        p.text(left, 24, NETS[net], "h")
        for exponent in range(-4, 2):
            for digit in (1, 2, 5) if most - least > 3 else (1, 1.5, 2, 3, 5, 7):
                loss = digit * 10.0 ** exponent
                if least <= math.log(loss) <= most:
                    y = at(0, loss, 1)[1]
                    p.path([(left, y), (left + 260, y)], "grid")
                    p.text(left - 6, y + 4, f"{loss:g}", "e")
        p.path([(left, 40), (left, 280), (left + 260, 280)], "axis")
        p.text(left, 296, 0, "m")
        p.text(left + 260, 296, iterations, "m")
        p.text(left + 130, 312, "iterations", "m")
        for scheme in schemes:
            curves = list(zip(*(r["loss"] for r in mine if r["scheme"] == scheme)))
            if not curves:
                continue
            colour = SCHEMES[scheme][1]
            band = ([at(i, max(v), len(curves)) for i, v in enumerate(curves)]
                    + [at(i, min(v), len(curves)) for i, v in reversed(list(enumerate(curves)))])
            p.path(band, "", f' fill="{colour}" fill-opacity=".18"')
            p.path([at(i, sum(v) / len(v), len(curves)) for i, v in enumerate(curves)], "",
                   f' fill="none" stroke="{colour}" stroke-width="1.6"')
    p.legend(330 * len(nets) + 40, 60, schemes)
    p.text(330 * len(nets) + 40, 160, "training loss: mean and")
    p.text(330 * len(nets) + 40, 176, "range of the seeds")
    return p


def tables(runs):
    timed = {(r["net"], r["scheme"]): r for r in runs if r["what"] == "time"}
    trained = {}
    for r in runs:
        if r["what"] == "train":
            trained.setdefault((r["net"], r["scheme"]), []).append(r)
    schemes = [s for s in SCHEMES if any(s == scheme for _, scheme in timed)]
    print("| network |", " | ".join(SCHEMES[s][0] for s in schemes),
          "|\n|---|" + "---|" * len(schemes))
    for net in NETS:
        cells = []
        for s in schemes:
            r = timed.get((net, s))
            planned = r and (timed.get((net, "deft"), {}).get("expected_ddp") if s == "ddp"
                             else r.get("expected"))
            cells.append(f"{r['ms']:.0f} ({planned:.0f})" if planned else f"{r['ms']:.0f}" if r
                         else "-")
        print(f"| {NETS[net]} |", " | ".join(cells), "|")
    schemes = [s for s in SCHEMES if any(s == scheme for _, scheme in trained)]
    print("\n| network, iterations, seeds |", " | ".join(SCHEMES[s][0] for s in schemes),
          "|\n|---|" + "---|" * len(schemes))
    for net in NETS:
        mine = {s: trained[net, s] for s in schemes if (net, s) in trained}
        mean = {s: [sum(r[key] for r in v) / len(v) for key in ("right", "updates")]
                for s, v in mine.items()}
        one = mine["ddp"][0]
        print(f"| {NETS[net]}, {one['iterations']:,}, {len(mine['ddp'])} |",
              " | ".join(f"{right:.1f}" + (f" ({right - mean['ddp'][0]:+.1f}; {updates:.2f})"
                                           if s != "ddp" else "")
                         for s, (right, updates) in mean.items()), "|")


def main(path, times_to, losses_to):
    with open(path) as f:
        runs = [json.loads(line) for line in f]
    times([r for r in runs if r["what"] == "time"]).save(times_to)
    losses([r for r in runs if r["what"] == "train"]).save(losses_to)
    tables(runs)


if __name__ == "__main__":
    main(*sys.argv[1:])
