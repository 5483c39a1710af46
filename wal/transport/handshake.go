package transport

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// laneKind names what a connection carries; its number is on the wire.
type laneKind uint8

const (
	laneBulk laneKind = iota
	laneUrgent
	laneSnapshot
	laneKinds // how many there are
)

// String names the lane in logs.
func (k laneKind) String() string {
	switch k {
	case laneBulk:
		return "bulk"
	case laneUrgent:
		return "urgent"
	case laneSnapshot:
		return "snapshot"
	}
	return "unknown"
}

const (
	protocolVersion = 1
	helloFixed      = 24
	answerLen       = 20
	// clusterIDMax bounds what a stranger can make us read.
	clusterIDMax = 64
)

var (
	helloMagic  = [4]byte{'T', 'C', 'P', 'H'}
	answerMagic = [4]byte{'T', 'C', 'P', 'A'}
)

// status is the answer to a handshake.
type status uint8

const (
	statusWelcome status = iota
	statusVersion
	statusCluster
	statusReplica
	statusBusy
	statusMalformed
)

// ErrHandshake: the other side is not who was meant, or does not want us.
var ErrHandshake = errors.New("transport: handshake refused")

// hello is what the dialling side says of itself and of whom it means.
type hello struct {
	version  uint16
	lane     laneKind
	from, to uint64
	cluster  string
}

func (h *hello) append(dst []byte) []byte {
	start := len(dst)
	dst = append(dst, helloMagic[:]...)
	dst = binary.LittleEndian.AppendUint16(dst, h.version)
	dst = append(dst, byte(h.lane), byte(len(h.cluster)))
	dst = binary.LittleEndian.AppendUint64(dst, h.from)
	dst = binary.LittleEndian.AppendUint64(dst, h.to)
	dst = append(dst, h.cluster...)
	return binary.LittleEndian.AppendUint32(dst, crc32.Checksum(dst[start:], castagnoli))
}

// readHello reads a handshake. A version other than ours is returned without
// reading on, since what follows is not known; the error is ErrVersion then.
func readHello(r io.Reader) (hello, error) {
	var b [helloFixed + clusterIDMax + 4]byte
	if _, err := io.ReadFull(r, b[:helloFixed]); err != nil {
		return hello{}, unexpected(err)
	}
	if [4]byte(b[:4]) != helloMagic {
		return hello{}, fmt.Errorf("handshake magic: found %x: %w", b[:4], ErrFrame)
	}
	h := hello{
		version: binary.LittleEndian.Uint16(b[4:]), lane: laneKind(b[6]),
		from: binary.LittleEndian.Uint64(b[8:]), to: binary.LittleEndian.Uint64(b[16:]),
	}
	if h.version != protocolVersion {
		return h, fmt.Errorf("handshake version: expected %d, found %d: %w", protocolVersion, h.version, ErrVersion)
	}
	n := int(b[7])
	if n > clusterIDMax || h.lane >= laneKinds {
		return hello{}, fmt.Errorf("handshake: cluster id of %d bytes, lane %d: %w", n, h.lane, ErrFrame)
	}
	if _, err := io.ReadFull(r, b[helloFixed:helloFixed+n+4]); err != nil {
		return hello{}, unexpected(err)
	}
	body := b[:helloFixed+n]
	if want, found := binary.LittleEndian.Uint32(b[helloFixed+n:]), crc32.Checksum(body, castagnoli); want != found {
		return hello{}, fmt.Errorf("handshake crc: expected %08x, found %08x: %w", want, found, ErrFrame)
	}
	h.cluster = string(b[helloFixed : helloFixed+n])
	return h, nil
}

// answer is what the listening side says.
type answer struct {
	version uint16
	status  status
	replica uint64
}

func (a *answer) append(dst []byte) []byte {
	start := len(dst)
	dst = append(dst, answerMagic[:]...)
	dst = binary.LittleEndian.AppendUint16(dst, a.version)
	dst = append(dst, byte(a.status), 0)
	dst = binary.LittleEndian.AppendUint64(dst, a.replica)
	return binary.LittleEndian.AppendUint32(dst, crc32.Checksum(dst[start:], castagnoli))
}

func readAnswer(r io.Reader) (answer, error) {
	var b [answerLen]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return answer{}, unexpected(err)
	}
	if [4]byte(b[:4]) != answerMagic {
		return answer{}, fmt.Errorf("handshake answer magic: found %x: %w", b[:4], ErrFrame)
	}
	if want, found := binary.LittleEndian.Uint32(b[16:]), crc32.Checksum(b[:16], castagnoli); want != found {
		return answer{}, fmt.Errorf("handshake answer crc: expected %08x, found %08x: %w", want, found, ErrFrame)
	}
	return answer{
		version: binary.LittleEndian.Uint16(b[4:]), status: status(b[6]), replica: binary.LittleEndian.Uint64(b[8:]),
	}, nil
}

// check turns an answer into an error that an operator can act on.
func (a *answer) check(h *hello) error {
	switch a.status {
	case statusWelcome:
		if a.replica == h.to {
			return nil
		}
		fallthrough
	case statusReplica:
		return fmt.Errorf("expected replica %d at this address, found %d: %w", h.to, a.replica, ErrHandshake)
	case statusVersion:
		return fmt.Errorf("peer speaks version %d, this binary %d: %w: %w", a.version, h.version, ErrVersion, ErrHandshake)
	case statusCluster:
		return fmt.Errorf("peer belongs to another cluster than %q: %w", h.cluster, ErrHandshake)
	case statusBusy:
		return fmt.Errorf("peer takes no more connections of this kind now: %w", ErrHandshake)
	}
	return fmt.Errorf("peer answers with status %d: %w", a.status, ErrHandshake)
}
