"""The sales of each category since the beginning.

These are sums of whole numbers without a time, so a table view has them: a row depends neither on the order of events
nor on how late they are, and no Spark is needed.
"""

from commands.aggregates.sales.sale import SaleMade
from projections import Cache, Postgres, TableView, add, average, count

category_sales = TableView(
    name="category_sales",
    key="category",
    columns={
        "sales": count(SaleMade),
        "cents": add({SaleMade: "cents"}),
        "average_cents": average({SaleMade: "cents"}),
    },
    stores=(Postgres(indexes=(("-cents",),)), Cache()),
    doc="the number, the sum and the average of the sales of each category",
)
