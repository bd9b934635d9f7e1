"""The listings on the market in each city and their prices, in PostgreSQL.

On the market means listed or under offer. The lowest price must rise again if its listing is sold or withdrawn, which a
plain `minimum` cannot do: the row keeps the current asking prices, and shows the lowest and highest. A city has few
distinct asking prices (they are round numbers), so the row stays small. The alternative, a query of the table
`listings` with an index by city and price, would read another view at another position.

The average price per square foot is the sum of all asking prices divided by the sum of all square feet on the market.
These are sums of integers, which do not depend on the order of arrival, unlike a mean of quotients.
"""

from commands.aggregates.listings.listing import (
    DetailsRevised,
    Listed,
    PriceChanged,
    PutUnderOffer,
    Relisted,
    Sold,
    Withdrawn,
)
from projections import Postgres, TableView, add, count, field, highest, lowest, members, minus, negative, ratio, when

ON_MARKET = add({Listed: 1, Relisted: 1, Sold: -1, Withdrawn: -1})
ASKED = add(
    {
        Listed: "price",
        Relisted: "price",
        PriceChanged: minus("price", "previous_price"),
        Sold: negative("price"),
        Withdrawn: negative("price"),
    }
)
AREA = add(
    {
        Listed: "square_feet",
        Relisted: "square_feet",
        DetailsRevised: "square_feet_added",
        Sold: negative("square_feet"),
        Withdrawn: negative("square_feet"),
    }
)
PRICES = members(
    {
        Listed: [(1, "price")],
        Relisted: [(1, "price")],
        PriceChanged: [(-1, "previous_price"), (1, "price")],
        Sold: [(-1, "price")],
        Withdrawn: [(-1, "price")],
    }
)

city_market = TableView(
    name="city_market",
    key="city",
    columns={
        "listed": add(
            {
                Listed: 1,
                Relisted: 1,
                PutUnderOffer: -1,
                Withdrawn: when(field("under_offer"), 0, -1),
            }
        ),
        "under_offer": add({PutUnderOffer: 1, Sold: -1, Withdrawn: when(field("under_offer"), -1, 0)}),
        "sold": count(Sold),
        "withdrawn": add({Withdrawn: 1, Relisted: -1}),
        "lowest_price": lowest(PRICES),
        "highest_price": highest(PRICES),
        "average_price": ratio(ASKED, ON_MARKET),
        "average_price_per_square_foot": ratio(ASKED, AREA),
    },
    stores=(Postgres(),),
    doc="Each city's market: how many listings in each status, and the asking prices of those on the market.",
)
