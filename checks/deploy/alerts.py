"""Compares alerts, runbooks, dashboard and metrics with each other.

usage: alerts.py ROOT QUERIES
Writes the queries of the dashboard to the file QUERIES, as rules that promtool can parse. Exits with status 1 if an alert
lacks its runbook, a runbook its alert, or a query names a metric that is not in docs/operations.md.
"""

import json
import re
import sys
from pathlib import Path

# What Grafana puts in place of its variables.
GRAFANA_VARIABLES = {"$__rate_interval": "1m", "$instance": ".*"}
# Names of metrics, and of what rules record.
METRIC = re.compile(r"\b(?:vintem|process)_[a-z0-9_]+\b|\bvintem:[a-z0-9_:]+\b")
HISTOGRAM_SUFFIX = re.compile(r"_(bucket|count|sum)$")


def documented_metrics(operations):
    table = operations.split("<!-- metrics: written by `just documents`. -->")[1].split("<!-- end of metrics -->")[0]
    return set(re.findall(r"^\| `([a-z_]+)` \|", table, re.MULTILINE))


def main():
    root, queries_file = Path(sys.argv[1]), Path(sys.argv[2])
    rules = (root / "deploy/prometheus/rules.yaml").read_text()
    runbooks = (root / "docs/runbooks.md").read_text()
    dashboard = json.loads((root / "deploy/grafana/vintem.json").read_text())
    metrics = documented_metrics((root / "docs/operations.md").read_text())
    recorded = set(re.findall(r"record: (\S+)", rules))
    problems = []

    alerts = re.findall(r"alert: (\S+)", rules)
    sections = re.findall(r"^## (\S+)$", runbooks, re.MULTILINE)
    links = re.findall(r"runbook: docs/runbooks\.md#(\S+)", rules)
    problems += [f"{alert} has no runbook" for alert in alerts if alert not in sections]
    problems += [f"the runbook {section} has no alert" for section in sections if section not in alerts]
    problems += [f"{alert} links to another runbook" for alert, link in zip(alerts, links) if alert.lower() != link]
    problems += [
        f"docs/runbooks.md links to {anchor}, which is not there"
        for anchor in re.findall(r"\]\(#([a-z]+)\)", runbooks)
        if anchor not in [section.lower() for section in sections]
    ]

    panels = [panel for panel in dashboard["panels"] if panel["type"] != "row"]
    queries = [target["expr"] for panel in panels for target in panel["targets"]]
    for text in [*re.findall(r"expr: (?:>-\n)?((?:.+\n?)(?:          .+\n)*)", rules), *queries]:
        for name in METRIC.findall(text):
            if name not in recorded and HISTOGRAM_SUFFIX.sub("", name) not in metrics and name not in metrics:
                problems.append(f"{name} is no metric of Vintém")

    lines = ["groups:", "  - name: dashboard", "    rules:"]
    for number, query in enumerate(queries):
        for variable, value in GRAFANA_VARIABLES.items():
            query = query.replace(variable, value)
        lines += [f"      - record: query_{number}", f"        expr: {json.dumps(query)}"]
    queries_file.write_text("\n".join(lines) + "\n")

    for problem in dict.fromkeys(problems):
        print(problem)
    print(f"alerts: {len(alerts)}")
    print(f"dashboard_queries: {len(queries)}")
    print(f"problems: {len(problems)}")
    return 1 if problems or not alerts or not queries else 0


if __name__ == "__main__":
    sys.exit(main())
