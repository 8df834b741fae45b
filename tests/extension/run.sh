#!/bin/sh
# Runs a program with the given flags, on the kind of device that the tests use.
exec "$@" --device "${TANDEM_TEST_DEVICE:-cpu}"
