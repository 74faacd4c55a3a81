"""What a compilation looks like at each stage, as text for people and as JSON for programs."""
