package object

// Wrapper is a Store around another.
type Wrapper interface{ Unwrap() Store }

// Close gives up what a store holds (connections, a lock), if it holds any.
func Close(s Store) error {
	if c, ok := s.(interface{ Close() error }); ok {
		return c.Close()
	}
	return nil
}

// As finds the first store in the chain of wrappers that is a T.
func As[T any](s Store) (T, bool) {
	for {
		if t, ok := s.(T); ok {
			return t, true
		}
		w, ok := s.(Wrapper)
		if !ok {
			var none T
			return none, false
		}
		s = w.Unwrap()
	}
}
