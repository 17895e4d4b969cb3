# /// script
# requires-python = ">=3.11"
# dependencies = ["pandas==3.1.1"]
#
# [tool.lambswool]
# binary = true
# memory = "512MB"
# ///
"""Reports on sales: CSV comes in (month, region, product, units, revenue), JSON goes out."""

import io

import pandas as pd


def handler(event, context):
    sales = pd.read_csv(io.BytesIO(event), parse_dates=["month"])
    print(f"{len(sales)} rows, {sales['month'].min():%Y-%m} to {sales['month'].max():%Y-%m}")
    yearly = sales.groupby(sales["month"].dt.year)["revenue"].sum()
    by_region = sales.groupby("region")["revenue"].sum().sort_values(ascending=False)
    monthly = sales.groupby("month")["revenue"].sum()
    return {
        "rows": len(sales),
        "revenue": round(float(sales["revenue"].sum()), 2),
        "revenue_by_year": {str(year): round(float(value), 2) for year, value in yearly.items()},
        "revenue_by_region": {name: round(float(value), 2) for name, value in by_region.items()},
        "best_product": str(sales.groupby("product")["units"].sum().idxmax()),
        "best_month": f"{monthly.idxmax():%Y-%m}",
        "growth_percent": round(float(yearly.pct_change().iloc[-1] * 100), 1),
    }
