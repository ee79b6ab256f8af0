"""Large trees."""
