// Package transport carries Raft messages, and the payloads that Raft must not
// see, between the replicas of shards. Its frame codec works on bytes alone
// (AppendFrame, DecodeFrame), so that the simulator uses the same code without
// a socket; Transport is the TCP part.
//
// # Connections
//
// A connection carries frames one way only, from who dialled it. For each peer
// there are two, plus one for each snapshot under way:
//
//   - bulk: every MsgApp, with payloads. Empty ones too: a MsgApp that overtook
//     those before it would be refused by the follower's log check, and the
//     leader would fall back to probing and send everything again.
//   - urgent: all other messages. They are small, and an election must not wait
//     behind megabytes of entries.
//   - snapshot: one MsgSnap and its stream.
//
// Messages of one (from, to, shard) keep their order within a lane, also over
// reconnects; between lanes there is no order, and any message may be lost.
//
// # Handshake
//
// All integers are little endian. Who dials writes, before anything else:
//
//	offset  size  field
//	     0     4  magic "TCPH"
//	     4     2  protocol version, 1; any other is refused by name
//	     6     1  lane: 0 bulk, 1 urgent, 2 snapshot
//	     7     1  length n of the cluster id, at most 64
//	     8     8  from: the dialling replica's id
//	    16     8  to: the replica that is meant
//	    24     n  cluster id
//	  24+n     4  CRC32C of all before
//
// and reads the answer; nothing else is ever sent that way, but a snapshot's outcome:
//
//	 0     4  magic "TCPA"
//	 4     2  protocol version of the answering side
//	 6     1  status: 0 welcome, 1 other version, 2 other cluster,
//	          3 other replica, 4 busy, 5 malformed
//	 7     1  zero
//	 8     8  replica id of the answering side
//	16     4  CRC32C of all before
//
// # Frame
//
//	offset  size  field
//	     0     2  magic "TC"
//	     2     1  version, 1; any other is refused by name
//	     3     1  zero
//	     4     4  shard
//	     8     8  from: replica id, as in the Raft message
//	    16     8  to: replica id, as in the Raft message
//	    24     8  HW: the sender's high watermark, a Raft index of the shard
//	    32     4  length r of the Raft message, at most 1 MiB
//	    36     4  number p of payloads: 0, or the number of entries, at most 1,024
//	    40     4  CRC32C of bytes 0 to 39 and of what follows, up to the payloads
//	    44   4*p  length of each payload, at most 65 MiB; 0: that entry has none
//	44+4*p     r  the Raft message, protobuf
//	         ...  the payloads, one after the other
//
// The CRC does not cover payloads: the descriptor in each entry names its
// payload's own CRC32C, which the shard checks before it believes the bytes.
//
// # Snapshot stream
//
// After the frame of a MsgSnap (without payloads) come chunks, numbered from 0:
//
//	0     4  length n, 1 to 256 KiB; 0 ends the stream
//	4     4  CRC32C of the chunk's number (8 bytes) and its n bytes;
//	         in the last one, of its number and the stream's length (8 bytes)
//	8     n  bytes
//
// A sender that cannot go on closes the connection. Who receives answers once,
// when all is durable and stepped, or when it has given up:
//
//	  0     4  magic "TCPR"
//	  4     2  length n of the reason, at most 1,024; 0: success
//	  6     n  reason
//	6+n     4  CRC32C of all before
//
// # Goroutines
//
// Transport owns all of them, and Close waits for all: the listener's; one
// reader for each connection that comes in; for each peer two senders (one per
// lane), each with a watcher that notices a closed connection; a fixed number
// of snapshot senders; and the notifier, which alone calls Handler.Unreachable
// and Handler.SnapshotSent, so that Send never calls back into its caller.
//
// # Changing the format
//
// A frame or handshake of another shape gets another version; both sides of a
// rolling upgrade then speak the lower one, which the answer tells.
package transport
