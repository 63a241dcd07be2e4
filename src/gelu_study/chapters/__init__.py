"""What the chapters on the activation itself show: a module each, called by the notebook of the same name."""
