"""The proof: unit, contracts, integration, acceptance, bench."""
