package broker

// Export registers a broker's figures with the meters of the process.
func (a *Admin) Export(b *Broker) error { return nil }
