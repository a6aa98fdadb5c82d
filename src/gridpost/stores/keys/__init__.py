"""Private keys: in files, in a PKCS#11 token, or in memory, all behind `core.ports.Keyring`."""
