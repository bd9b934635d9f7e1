"""What a checkout publishes: the site of its docs, and a release. Not part of the wheel; nothing else imports it."""
