package batch

// Batch is a view over the bytes of exactly one record batch v2.
type Batch []byte

// Info is what the gate learned about a batch while validating it.
type Info struct {
	Records      int
	MaxTimestamp int64
	// Uncompressed is the size of the records section after decompression.
	Uncompressed int
}
