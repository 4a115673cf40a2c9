"""`tacit.report`: campaigns made up with known numbers, their tables, plots and page; files that are broken."""

import base64
import json
import re
import struct
from html.parser import HTMLParser
from xml.etree import ElementTree

import numpy as np
import pytest

import report_campaigns as made
import tacit
from tacit.report import _load, _record, write_report
from tacit.report._build import make_sections
from tacit.report._cells import grid
from tacit.report._energy import worst
from tacit.report._format import Stat, plain, spread


def sections(folder):
    """Title -> section, and the warnings."""
    campaign = _load.load(folder)
    warnings = list(campaign.warnings)
    return {s.title: s for s in make_sections(campaign, grid(campaign.runs), warnings)}, warnings


def rows(section, title, group="", table=0):
    """A table as dictionaries."""
    item = next(i for i in section.items if i.title == title and i.group == group)
    content = item.tables[table]
    return [dict(zip(content.columns, row, strict=True)) for row in content.rows]


def lines_of(figure):
    """Label -> points of what is drawn."""
    return {text.get_text(): None for text in figure.legends[0].get_texts()} if figure.legends else {}


class Page(HTMLParser):
    """What a browser sees: tags with attributes, and text."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.text = [], ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text += data


@pytest.fixture(scope="module")
def bandwidth(tmp_path_factory):
    """A campaign like `pm24-bandwidth`, and its page."""
    folder = made.bandwidth_campaign(tmp_path_factory.mktemp("bandwidth"), repetitions=2)
    return folder, write_report(folder).read_text()


def test_figures_against_bandwidth_are_those_of_the_runs(tmp_path):
    found, _ = sections(made.write_campaign(tmp_path, made.two_links()))
    section = found["Against bandwidth"]
    assert rows(section, "Latency") == [
        {"bandwidth (Mbit/s)": "98.0 ± 0", "n": "2", "latency (s)": "5.50 ± 0.71"},
        {"bandwidth (Mbit/s)": "3.92 ± 0", "n": "2", "latency (s)": "100.5 ± 0.7"},
    ]
    fast = rows(section, "Energy")[0]
    assert fast["gross (J)"] == "21.0 ± 1.4"
    assert fast["net (J)"] == "11.0 ± 1.4", "the SD of the runs, 1.41 J, is larger than their own 0.5 J"
    assert fast["provenance"] == "modelled"
    assert rows(section, "Mean power")[0]["mean power (W)"] == "2.10 ± 0.14"
    assert rows(section, "Processor time")[0]["CPU (s)"] == "3.50 ± 0.71"
    latency = next(i for i in section.items if i.title == "Latency").figure.axes[0]
    assert latency.get_xscale() == latency.get_yscale() == "log"
    x, y = latency.lines[0].get_data()
    assert x == pytest.approx([3.92, 98.0]) and y == pytest.approx([100.5, 5.5])
    assert "measured bandwidth (Mbit/s)" in latency.get_xlabel()


def test_many_series_have_plots_of_their_own(tmp_path):
    runs = [
        made.run(
            {"link": n, "workload": w}, 0, s, link=made.link(m), energy={p: made.energy(s, 1) for p in ("client", "server")}
        )
        for n, m, s in (("slow", 4, 100), ("fast", 100, 5))
        for w in ("upload", "download", "ping-pong")
    ]
    section = sections(made.write_campaign(tmp_path, runs))[0]["Against bandwidth"]
    latency, *others = section.items
    assert list(lines_of(latency.figure)) == ["download", "ping-pong", "upload"]
    assert [(i.title, i.group) for i in others] == [
        (t, w) for w in ("download", "ping-pong", "upload") for t in ("Mean power", "Energy")
    ]
    assert list(lines_of(others[0].figure)) == ["client (modelled)", "server (modelled)"]
    page = write_report(tmp_path).read_text()
    assert page.count("<details open><summary>download") == 1 and "<details><summary>upload" in page


def test_links_are_shown_with_target_and_deviation(tmp_path):
    found, _ = sections(made.write_campaign(tmp_path, made.two_links()))
    content = found["Links: target and measured"].items[0].tables[0]
    assert [row[:5] for row in content.rows] == [
        ("fast", "2", "100.0", "98.0 ± 0", "−2.0 %"),
        ("slow", "2", "4.000", "3.92 ± 0", "−2.0 %"),
    ]
    assert content.rows[0][8:] == ("40.0", "40.4 ± 0", "+0.40", "80.0 ± 0")


def test_transports_are_compared_with_plain_per_role(tmp_path):
    found, _ = sections(made.transport_campaign(tmp_path, repetitions=2))
    section = found["Transports"]
    assert {i.group for i in section.items} == {"send", "receive"}
    speed = rows(section, "Speed", "send")
    assert [r["transport"] for r in speed] == ["plain", "tls", "wireguard", "tls+wireguard"]
    assert [r["MB/s"] for r in speed] == ["110 ± 0", "88.0 ± 0", "46.0 ± 0", "38.0 ± 0"]
    assert [r["to plain"] for r in speed] == ["1.00×", "0.80×", "0.42×", "0.35×"]
    cpu = rows(section, "Processor time per gigabyte", "send")
    wireguard = next(r for r in cpu if r["transport"] == "wireguard" and r["party"] == "client")
    payload = (1 << 30) / 1e9
    assert wireguard["user (s/GB)"] == f"{6 * 1.07 / payload:.2f} ± 0"
    assert wireguard["to plain"] == f"{9.8 / 1.1:.2f}×"


def test_paces_make_a_sweep_of_their_own(tmp_path):
    runs = [
        made.run({"link": "lan", "pace": pace}, 0, 60 / mbit, link=made.link(94), energy={"client": made.energy(mbit * 2)})
        for pace, mbit in (("none", 90), ("500kbit", 0.5), ("20mbit", 20), ("1gbit", 90))
    ]
    found, _ = sections(made.write_campaign(tmp_path, runs))
    section = found["Against pace"]
    table = [(r["pace (Mbit/s)"], r["latency (s)"]) for r in rows(section, "Latency")]
    assert sorted(table) == [("0.500", "120"), ("20.0", "3.00"), ("94.0", "0.667"), ("94.0", "0.667")], (
        "the link is the upper bound"
    )
    assert section.items[0].figure.axes[0].get_xlabel() == "pace (Mbit/s)"


def test_idle_baselines_are_shown_with_their_drift(tmp_path):
    made.write_idle(tmp_path, 2.0, 2.5)
    found, warnings = sections(made.write_campaign(tmp_path))
    item = found["Idle power"].items[0]
    assert warnings == [] and "No results" in found
    assert item.tables[0].rows[1] == ("2", "after", "meter", "2.00", "2.500 ± 0.050", "0.200", "20")
    assert "meter: 0.500 W" in item.tables[0].note
    assert [line.get_ydata()[0] for line in item.figure.axes[0].lines] == pytest.approx([2.0, 2.5])
    with (tmp_path / "idle.jsonl").open("a") as file:
        file.write('{"when":"bef')
    found, warnings = sections(tmp_path)
    assert len(found["Idle power"].items[0].tables[0].rows) == 2 and len(warnings) == 1


def test_energy_per_megabyte_by_hand(tmp_path):
    runs = [
        made.run({"transport": name}, 0, 10, energy={"client": made.energy(40, 20, 1, 10, "measured")}, results={"payload_bytes": size})
        for name, size in (("plain", 10e6), ("tls", 5e6))
    ]  # fmt: skip
    found, _ = sections(made.write_campaign(tmp_path, runs))
    table = rows(found["Transports"], "Energy per megabyte")
    # 20 J net over 10 MB. One run: its own uncertainty of 5 % is the error.
    assert table[0] == {
        "transport": "plain", "party": "client", "net J/MB": "2.00 ± 0.10", "to plain": "1.00×", "provenance": "measured",
    }  # fmt: skip
    assert table[1]["net J/MB"] == "4.00 ± 0.20" and table[1]["to plain"] == "2.00×"
    figure = next(i for i in found["Transports"].items if i.title == "Energy per megabyte").figure
    assert [bar.get_height() for bar in figure.axes[0].patches] == pytest.approx([2.0, 4.0])
    assert list(lines_of(figure)) == ["client (measured)"]


def test_energy_that_means_nothing_is_said_to_be_below_noise(tmp_path):
    figure = made.energy(10.1, 10, 0.5, 10, noisy=True)
    runs = [made.run({"link": n}, 0, 10, link=made.link(m), energy={"client": figure}, results={"sent_bytes": 1e6})
            for n, m in (("a", 1), ("b", 50))]  # fmt: skip
    found, _ = sections(made.write_campaign(tmp_path, runs))
    assert rows(found["Against bandwidth"], "Energy")[0]["net (J)"] == "below noise"
    assert rows(found["Speed and cost per byte"], "Energy per megabyte")[0]["net J/MB"] == "below noise"
    page = write_report(tmp_path).read_text()
    assert "below noise" in page


def test_a_mean_that_cannot_be_told_from_nothing_is_below_noise(tmp_path):
    for spread_j, says in ((9.0, "below noise"), (2.0, "10.0 ± 2.8")):
        runs = [
            made.run({"link": n}, k, 10, link=made.link(m), energy={"client": made.energy(100 + 10 + s, 100)})
            for n, m in (("a", 1), ("b", 50))
            for k, s in enumerate((-spread_j, spread_j))
        ]
        found, _ = sections(made.write_campaign(tmp_path, runs))
        # Two runs: the mean's standard error is the SD over the square root of two, which is the spread here.
        assert rows(found["Against bandwidth"], "Energy")[0]["net (J)"] == says


def test_a_small_change_does_not_fill_the_axis(tmp_path):
    runs = [made.run({"link": n}, 0, s, link=made.link(m)) for n, m, s in (("a", 1, 10.0), ("b", 50, 10.2))]
    found, _ = sections(made.write_campaign(tmp_path, runs))
    low, high = found["Against bandwidth"].items[0].figure.axes[0].get_ylim()
    assert high / low == pytest.approx(2)
    ticks = [t for t in found["Against bandwidth"].items[0].figure.axes[0].get_yticks() if low <= t <= high]
    assert len(ticks) >= 3


def test_without_an_idle_baseline_energy_is_gross_and_says_so(tmp_path):
    runs = [
        made.run({"transport": t}, 0, 10, energy={"client": made.energy(30)}, results={"sent_bytes": 1e7})
        for t in ("plain", "tls")
    ]
    found, _ = sections(made.write_campaign(tmp_path, runs))
    item = next(i for i in found["Transports"].items if i.title == "Energy per megabyte")
    assert "No idle baseline" in item.caption
    assert rows(found["Transports"], "Energy per megabyte")[0]["gross J/MB"] == "3.00"


def test_without_joules_the_page_says_absent_and_shows_processor_seconds(tmp_path):
    runs = made.two_links()
    for run in runs:
        del run["energy"]
    found, _ = sections(made.write_campaign(tmp_path, runs))
    titles = [i.title for s in found.values() for i in s.items]
    assert "Energy" in found and "Energy per megabyte" not in titles and "Mean power" not in titles
    # 2 s of user time for 4 MB.
    assert rows(found["Speed and cost per byte"], "Processor time per gigabyte")[0]["user (s/GB)"] == "500 ± 0"
    page = Page(write_report(tmp_path).read_text()).text
    assert "absent, not zero" in page and " J/MB" not in page


def test_power_over_time_has_the_band_of_the_repetitions(tmp_path):
    for k, watts in enumerate((2.0, 4.0)):
        lines = [made.powered(t, watts * t) for t in range(31)]
        lines += [made.mark(0, "setup", "begin"), made.mark(10, "setup", "end")]
        made.write_record(tmp_path / "records" / f"{k}.jsonl", lines, [made.source(provenance="attributed")])
    folder = made.write_campaign(tmp_path, [made.run({}, k, 30, record=f"records/{k}.jsonl") for k in (0, 1)])
    found, warnings = sections(folder)
    assert warnings == []
    item = found["Over time"].items[0]
    assert "2 runs, length 30.0 ± 0 s, slots of 1 s." in item.caption
    row = dict(zip(item.tables[0].columns, item.tables[0].rows[0], strict=True))
    assert row["mean (W)"] == "3.0 ± 1.4" and row["provenance"] == "attributed"
    assert row["energy of the merged run (J)"] == "90.0"
    assert item.tables[1].rows == (("setup", "client", "1", "0", "10.0", "10.0"),)
    axes = item.figure.axes[0]
    assert axes.lines[0].get_ydata() == pytest.approx(np.full(31, 3.0))
    band = axes.collections[0].get_paths()[0].vertices[:, 1]
    assert (band.min(), band.max()) == pytest.approx((3 - np.sqrt(2), 3 + np.sqrt(2)))
    shaded = [p for p in axes.patches if p.get_width() == pytest.approx(10)]
    assert len(shaded) == 1
    assert "setup" in [t.get_text() for t in axes.texts]


def test_one_repetition_has_no_deviation(tmp_path):
    made.write_record(tmp_path / "records/0.jsonl", [made.powered(t, 2.0 * t) for t in range(5)], [made.source()])
    found, _ = sections(
        made.write_campaign(tmp_path, [made.run({}, 0, 4, record="records/0.jsonl", results={"latency_s": 4.0})])
    )
    assert "±" not in json.dumps([i.tables[0].rows for s in found.values() for i in s.items], ensure_ascii=False)
    item = found["Over time"].items[0]
    assert "1 run, so no band" in item.caption and not item.figure.axes[0].collections


def test_cores_and_traffic_over_time(tmp_path):
    lines = [
        {
            "type": "sample", "t": float(t), "memory_bytes": 0,
            "cores": [{"user_s": 0.5 * t, "system_s": 0.25 * t, "idle_s": 0.25 * t, "mhz": 1000 if t < 20 else 2000}] * 2,
            "interfaces": {"eth0": {"rx_bytes": 1_000_000 * t, "tx_bytes": 0, "rx_packets": 0, "tx_packets": 0}},
        }
        for t in range(41)
    ]  # fmt: skip
    made.write_record(tmp_path / "records/0.jsonl", lines)
    found, _ = sections(made.write_campaign(tmp_path, [made.run({}, 0, 40, record="records/0.jsonl")]))
    cores = rows(found["Over time"], "Cores")[1]
    assert cores["mean use (%)"] == "75.0"
    # A reading stands for the time since the one before: 19 s at 1000 MHz, 21 s at 2000 MHz.
    assert (cores["lowest (MHz)"], cores["mean (MHz)"], cores["highest (MHz)"]) == ("1,000", "1,525", "2,000")
    traffic = rows(found["Over time"], "Traffic")
    assert traffic == [
        {"interface": "eth0", "": "received", "MB per run": "40.0", "mean (Mbit/s)": "8.00", "highest slot (Mbit/s)": "8.00"}
    ]


def test_many_cores_are_drawn_as_a_map(tmp_path):
    lines = [{"type": "sample", "t": t, "cores": [{"user_s": t * c / 16, "idle_s": t} for c in range(16)]} for t in range(4)]
    made.write_record(tmp_path / "records/0.jsonl", lines)
    found, _ = sections(made.write_campaign(tmp_path, [made.run({}, 0, 3, record="records/0.jsonl")]))
    figure = found["Over time"].items[0].figure
    assert figure.axes[0].get_ylabel() == "core" and not figure.axes[0].lines


def test_the_page_is_one_file_with_every_plot_and_its_table(bandwidth):
    folder, text = bandwidth
    page = Page(text)
    images = [a for tag, a in page.tags if tag == "img"]
    files = sorted(p.stem for p in (folder / "plots").glob("*.svg"))
    assert len(images) == len(files) == 7 + 4 * 4
    assert all(a["src"].startswith("data:image/svg+xml;base64,") and a["alt"] for a in images)
    assert not {"script", "link", "iframe"} & {tag for tag, _ in page.tags}
    assert not [a for _, a in page.tags if "href" in a or a.get("src", "data:")[:5] != "data:"]
    assert text.count('class="pair"') == len(images), "a table beside every plot"
    assert all(re.search(r"<table>", part) for part in text.split('class="pair"')[1:])
    assert "width=device-width" in text
    for words in ("pm24-bandwidth", "AMD EPYC 9B14", "8 in 4 cells; 1 failed; 1 failed and repeated with success", "timed out after 600 s",
                  "modelled", 'rate = "941mbit"', "the port was in use"):  # fmt: skip
        assert words in page.text, words


def test_plots_are_written_as_png_and_svg(bandwidth):
    folder, text = bandwidth
    for svg in (folder / "plots").glob("*.svg"):
        png = svg.with_suffix(".png").read_bytes()
        assert png[:8] == b"\x89PNG\r\n\x1a\n"
        width, height = struct.unpack(">II", png[16:24])
        assert width == 980 and height >= 620
        assert base64.b64encode(svg.read_bytes()).decode() in text
    words = "".join(ElementTree.parse(folder / "plots/sweep-energy.svg").getroot().itertext())
    assert "energy per run (J)" in words and "client (modelled), net" in words


def test_a_second_report_replaces_the_first_ones_plots(tmp_path):
    made.write_campaign(tmp_path, made.two_links())
    write_report(tmp_path)
    first = (tmp_path / "plots/sweep-latency.svg").read_bytes()
    (tmp_path / "plots/stale.png").write_bytes(b"")
    (tmp_path / "plots/notes.txt").write_text("mine")
    write_report(tmp_path)
    assert (tmp_path / "plots/sweep-latency.svg").read_bytes() == first, "the same data give the same plot"
    assert not (tmp_path / "plots/stale.png").exists() and (tmp_path / "plots/notes.txt").exists()


def test_plots_are_not_written_through_a_link(tmp_path):
    pictures, folder = tmp_path / "pictures", made.write_campaign(tmp_path / "campaign", made.two_links())
    pictures.mkdir()
    (pictures / "holiday.png").touch()
    (folder / "plots").symlink_to(pictures)
    with pytest.raises(tacit.TacitError, match="plots: is a link"):
        write_report(folder)
    assert [p.name for p in pictures.iterdir()] == ["holiday.png"]


def test_joules_are_named_by_the_provenance_that_claims_least(tmp_path):
    assert worst(["measured", "modelled", "attributed"]) == "modelled"
    assert (worst(["measured", "of unknown provenance"]), worst([])) == ("of unknown provenance", "")
    runs = made.two_links()
    for run in runs:
        lan = run["cell"]["link"] == runs[0]["cell"]["link"]
        run["energy"] = {"client": made.energy(9, 3, 0.1, provenance="measured" if lan else "modelled")}
    found, _ = sections(made.write_campaign(tmp_path, runs))
    labels = [label for item in found["Against bandwidth"].items for label in lines_of(item.figure)]
    assert "client (modelled), net" in labels and not any("measured" in label for label in labels)


EVIL = '<script>alert("x")</script>&$\\frac{1}{$ \u202e\x00\ud800'


def test_whatever_files_hold_is_text(tmp_path):
    evil = {"link": EVIL, "transport": EVIL + "2"}
    lines = [
        {**made.powered(t, t, EVIL), "parties": {EVIL: made.party(t, t)}, "interfaces": {EVIL: {"rx_bytes": t, "tx_bytes": t}}}
        for t in range(9)
    ] + [made.mark(0, EVIL, "begin", EVIL), {"type": "note", "t": 1, "text": EVIL}]  # fmt: skip
    made.write_record(tmp_path / "records/0.jsonl", lines, [made.source(EVIL, EVIL)])
    figures = {"energy": {EVIL: made.energy(2, 1, 0.1, provenance=EVIL)}, "parties": {EVIL: made.party(1, 1)}}
    runs = [
        made.run(evil | {"link": f"{EVIL}{m}"}, 0, 8, record="records/0.jsonl", link=made.link(m), results={EVIL: 1.0, "sent_bytes": 1e6}, **figures)
        for m in (1, 99)
    ] + [made.run(evil, 1, failure=EVIL)]  # fmt: skip
    made.write_campaign(tmp_path, runs, experiment=EVIL, description=EVIL, spec=EVIL, machine={EVIL: EVIL})
    text = write_report(tmp_path).read_text()
    page = Page(text)
    assert "script" not in {tag for tag, _ in page.tags}
    assert text.count("&lt;script&gt;alert(&quot;x&quot;)&lt;/script&gt;&amp;") > 10
    assert "\x00" not in text and "\u202e" not in text
    for svg in (tmp_path / "plots").glob("*.svg"):
        tags = {element.tag.split("}")[-1] for element in ElementTree.parse(svg).iter()}
        assert "script" not in tags and "text" in tags
        assert re.fullmatch(r"[a-z0-9-]+", svg.stem)


def test_cells_whose_names_collide_keep_their_plots_apart(tmp_path):
    for k in (0, 1):
        made.write_record(
            tmp_path / f"records/{k}.jsonl", [made.powered(t, (k + 1.0) * t) for t in range(5)], [made.source()]
        )
    names = ("lan!", "lan?")
    runs = [made.run({"net": n}, 0, 4, record=f"records/{k}.jsonl") for k, n in enumerate(names)]
    write_report(made.write_campaign(tmp_path, runs))
    plots = sorted(p.name for p in (tmp_path / "plots").glob("time-power*.svg"))
    assert plots == ["time-power-lan-2.svg", "time-power-lan.svg"]
    assert (tmp_path / "plots" / plots[0]).read_bytes() != (tmp_path / "plots" / plots[1]).read_bytes()


def test_number_formats():
    assert [plain(v) for v in (0.0, 0.001234, 1.5, 12345.6, -2.0, 1e-9)] == [
        "0",
        "0.00123",
        "1.50",
        "12,346",
        "−2.00",
        "1e-09",
    ]
    assert spread(Stat(3, 12.345, 0.0312)) == "12.35 ± 0.03"
    assert spread(Stat(3, -0.5, 2.0)) == "−0.500 ± 2.000"
    assert spread(None) == "–"


def test_an_empty_campaign_has_a_page(tmp_path):
    page = Page(write_report(made.write_campaign(tmp_path)).read_text()).text
    assert "none yet" in page and "No run has ended well yet" in page
    (tmp_path / "runs.jsonl").unlink()
    assert "no run has been finished yet" in Page(write_report(tmp_path).read_text()).text


def test_a_last_line_that_was_cut_off_costs_that_line_only(tmp_path):
    made.write_campaign(tmp_path, made.two_links())
    path = tmp_path / "runs.jsonl"
    path.write_text(path.read_text() + '{"cell":{"link":"slo')
    campaign = _load.load(tmp_path)
    assert len(campaign.runs) == 4
    assert len(campaign.warnings) == 1 and "line 5" in campaign.warnings[0] and "cut off" in campaign.warnings[0]


def test_a_broken_line_in_between_is_left_out(tmp_path):
    runs = made.two_links()
    made.write_campaign(tmp_path, [runs[0], "{nonsense", "[]", *runs[1:]])
    campaign = _load.load(tmp_path)
    assert len(campaign.runs) == 4 and [w.endswith("left out.") for w in campaign.warnings] == [True, True]


def test_a_file_of_nothing_but_nonsense_has_few_warnings(tmp_path):
    campaign = _load.load(made.write_campaign(tmp_path, ["{nonsense"] * 1000))
    assert len(campaign.warnings) == 101 and campaign.warnings[-1] == "900 more broken lines of runs.jsonl left out."


def test_long_lines_are_thinned_and_no_energy_is_lost(tmp_path, monkeypatch):
    monkeypatch.setattr(_record, "MAX_KEPT", 10_000)
    made.write_record(tmp_path / "r.jsonl", [made.powered(t, 2.0 * t) for t in range(1000)], [made.source()])
    trace = _record.read(tmp_path / "r.jsonl")
    assert 20 < len(trace.t) < 200 and (trace.t[-1], trace.energy["meter"][-1]) == (999, 1998)


def test_values_of_the_wrong_type_do_no_harm(tmp_path):
    made.write_idle(tmp_path, 1.0)
    odd = [None, True, "x", [], {}, 1e999, 1e308, 5e-324, 10**400, -1, {"client": 3}, {"client": {"gross_j": "much"}}]
    for key in ("cell", "repetition", "record", "duration_s", "link", "energy", "parties", "results"):
        made.write_campaign(tmp_path, [{**made.run({"a": f"{i}"}, i), key: value} for i, value in enumerate(odd)])
        made.write_lines(tmp_path / "idle.jsonl", [{"power": value, "record": value} for value in odd])
        assert "</html>" in write_report(tmp_path).read_text()


def test_records_that_cannot_be_read_are_named(tmp_path):
    secret = tmp_path / "secret.jsonl"
    made.write_record(secret, [made.powered(0, 0), made.powered(1, 1)], [made.source()])
    folder = tmp_path / "campaign"
    (folder / "records").mkdir(parents=True)
    (folder / "records/empty.jsonl").touch()
    names = ("records/gone.jsonl", "records/empty.jsonl", "../secret.jsonl", str(secret), "records", "a\0b")
    found, warnings = sections(made.write_campaign(folder, [made.run({}, k, record=n) for k, n in enumerate(names)]))
    assert "Over time" not in found
    assert len(warnings) == len(names)
    for words, warning in zip(
        ("gone.jsonl", "empty", "outside", "outside", "records", "Record not used"), warnings, strict=True
    ):
        assert words in warning


@pytest.mark.parametrize(
    ("about", "says"),
    [
        ({"version": 2}, r"campaign.json: version 2 .* reads version 1"),
        ({"version": None}, "version null"),
        ({"version": "1"}, "version 1 "),
    ],
)
def test_a_version_from_the_future_is_refused(tmp_path, about, says):
    made.write_campaign(tmp_path, made.two_links(), **about)
    with pytest.raises(tacit.TacitError, match=says):
        write_report(tmp_path)
    assert not (tmp_path / "report.html").exists()


def test_what_is_no_campaign_is_refused(tmp_path):
    with pytest.raises(tacit.TacitError, match="campaign.json: No such file"):
        write_report(tmp_path)
    (tmp_path / "campaign.json").write_text("{")
    with pytest.raises(tacit.TacitError, match="not valid JSON"):
        write_report(tmp_path)


def test_a_page_that_cannot_be_written_is_an_error(tmp_path):
    made.write_campaign(tmp_path)
    with pytest.raises(tacit.TacitError, match="cannot be written"):
        write_report(tmp_path, tmp_path / "nowhere" / "report.html")
    assert [p.name for p in tmp_path.iterdir() if "html" in p.name] == []
