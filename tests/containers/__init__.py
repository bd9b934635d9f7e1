"""`python -m tests.containers`: tries the images, the fixture for users and the compose file with podman.

Where no registry of images is reached, stand-ins for the servers' official images are built of the local stack's parts.
"""
