"""XSD and WSDL files, written from the structures that the standards fix."""
