package batch

import (
	"fmt"
	"testing"
)

// BenchmarkGate is the produce path's cost per byte, for small and large
// records in small and large batches.
func BenchmarkGate(b *testing.B) {
	for _, c := range allCodecs {
		for _, size := range []int{16 << 10, 1 << 20} {
			for _, rec := range []int{100, 1024} {
				b.Run(fmt.Sprintf("%s/%dKiB/%dB", c, size>>10, rec), func(b *testing.B) {
					bt := build(BuilderOptions{Codec: c}, samples(1, size/rec, rec))
					o := &GateOptions{Codec: CodecProducer}
					_, info, err := Gate(bt, o)
					if err != nil {
						b.Fatal(err)
					}
					b.SetBytes(int64(HeaderLen + info.Uncompressed))
					b.ReportAllocs()
					for b.Loop() {
						if _, _, err := Gate(bt, o); err != nil {
							b.Fatal(err)
						}
					}
				})
			}
		}
	}
}

// BenchmarkIterate reads every record of a batch.
func BenchmarkIterate(b *testing.B) {
	for _, c := range allCodecs {
		b.Run(c.String(), func(b *testing.B) {
			bt := build(BuilderOptions{Codec: c}, samples(1, 10_000, 100))
			b.SetBytes(int64(10_000 * 100))
			b.ReportAllocs()
			for b.Loop() {
				if err := Iterate(bt, func(Record) bool { return true }); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
