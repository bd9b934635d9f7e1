"""`python -m headwater.samples.shop`: creates, fills and changes the database `shop`."""

import os
import sys
import time
from typing import Annotated

import psycopg
import typer
from rich.console import Console

from headwater.compose.settings import StackSettings

from .database import create_shop
from .filling import fill
from .transactions import Traffic

app = typer.Typer(help="Fill and change the database `shop` by ordinary SQL.", no_args_is_help=True)
Seed = Annotated[int, typer.Option(help="The same seed makes the same rows and changes.")]


def main() -> None:
    """Run the command line; errors of the database are printed in one line, with exit code 1."""
    try:
        app()
    except psycopg.Error as error:
        Console(stderr=True).print(f"error: {error}".strip(), style="red", markup=False, highlight=False)
        sys.exit(1)


@app.command(name="fill")
def fill_tables(
    seed: Seed = 1,
    customers: Annotated[int, typer.Option(min=0, help="How many customers to add.")] = 500,
    products: Annotated[int, typer.Option(min=0, help="How many products to add.")] = 200,
) -> None:
    """Add random rows to the tables of `shop`, which is created if it does not exist."""
    with psycopg.connect(_shop()) as connection:
        fill(connection, seed, customers, products)


@app.command()
def traffic(
    seed: Seed = 1,
    transactions: Annotated[int, typer.Option(min=1, help="How many transactions to make.")] = 1_000,
    rate: Annotated[float, typer.Option(min=0.1, help="How many transactions to make per second.")] = 50.0,
) -> None:
    """Make random transactions: inserts, updates, deletes, key changes, rollbacks."""
    with psycopg.connect(_shop(), autocommit=True) as connection:
        client, began = Traffic(connection, seed), time.monotonic()
        for number in range(transactions):
            client.step()
            time.sleep(max(0.0, began + (number + 1) / rate - time.monotonic()))
        for kind, count in client.made.most_common():
            print(f"{count:7} {kind}")


def _shop() -> str:
    server = os.environ.get("HEADWATER_POSTGRES") or StackSettings.from_environ(os.environ).endpoints.postgres
    return create_shop(server)


if __name__ == "__main__":
    main()
