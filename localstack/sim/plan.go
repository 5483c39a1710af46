package sim

// plan is how one run's faults are mixed: each seed draws its own, so that
// some runs see one kind of fault only and others all of them.
type plan struct {
	loss, dup, slowMsg, corrupt  float64
	cutEvery, crashEvery         int64 // mean time between, 0: never
	transferEvery, slowDiskEvery int64
	tornCommit                   float64 // a commit during which the power fails
	syncError                    float64 // an fdatasync that fails; the log goes out of service
	hold                         float64
	replyLost                    float64
	raftBytes                    uint64 // small: proposals are dropped
	cacheBytes                   int
	payloadBytes                 int
	sealEvery                    int64
	sealBytes                    int64
	uploadLost                   float64
	snapshotMin                  int64
	crashAll                     bool
	bigBatches                   bool
	poison                       bool
	deposed                      bool // long one-way cuts of leaders
	fileBytes, maxBytes          int64
	logFull                      float64 // an append that the log has no room for
	loseEvery                    int64   // mean time between lost disks, 0: never
}

func (w *world) drawPlan() plan {
	r := w.rng
	some := func(p, v float64) float64 {
		if r.Float64() < p {
			return v * r.Float64()
		}
		return 0
	}
	every := func(p float64, lo, hi int64) int64 {
		if r.Float64() < p {
			return lo + r.Int64N(hi-lo)
		}
		return 0
	}
	p := plan{
		loss: some(0.6, 0.15), dup: some(0.5, 0.1), slowMsg: some(0.6, 0.2), corrupt: some(0.3, 0.02),
		cutEvery: every(0.6, 700, 3000), crashEvery: every(0.7, 700, 4000),
		transferEvery: every(0.4, 500, 2500), slowDiskEvery: every(0.5, 700, 3000),
		tornCommit: some(0.4, 0.004), syncError: some(0.2, 0.002), hold: some(0.3, 0.1),
		replyLost: some(0.7, 0.1), cacheBytes: 1 << 20, payloadBytes: 1 << 20,
		sealEvery: every(0.85, 100, 800), sealBytes: 2000 + r.Int64N(20000), uploadLost: some(0.4, 0.4),
		snapshotMin: 1 + r.Int64N(8000), crashAll: r.Float64() < 0.3, bigBatches: r.Float64() < 0.3,
		poison: r.Float64() < 0.2, deposed: r.Float64() < 0.3,
		fileBytes: 512 << 10, maxBytes: 8 << 20,
	}
	if r.Float64() < 0.3 {
		p.raftBytes = 56 * (2 + r.Uint64N(4))
	}
	if r.Float64() < 0.4 {
		p.cacheBytes = 1
	}
	if r.Float64() < 0.3 {
		p.payloadBytes = 300 + r.IntN(2000)
	}
	if r.Float64() < 0.3 {
		// Files are recycled often; an append should not exceed an eighth of one.
		p.fileBytes, p.maxBytes, p.payloadBytes, p.bigBatches = 32<<10, 512<<10, 2000, false
	}
	return p
}

// startFaults schedules what the plan asks for.
func (w *world) startFaults() {
	p := &w.plan
	w.repeat(p.cutEvery, w.cutSomething)
	w.repeat(p.crashEvery, w.crashSomething)
	w.repeat(p.transferEvery, w.transferSomething)
	w.repeat(p.slowDiskEvery, w.slowSomething)
	w.repeat(p.sealEvery, w.sealSomething)
	w.repeat(900, w.adminSomething)
	if p.deposed {
		w.repeat(2200, w.deposeSomething)
	}
}

// repeat calls fn every mean milliseconds or so, until the calm phase.
func (w *world) repeat(mean int64, fn func()) {
	if mean == 0 {
		return
	}
	w.after(w.between(mean/2, mean*3/2), func() {
		if w.calm {
			return
		}
		fn()
		w.repeat(mean, fn)
	})
}

func (w *world) cutSomething() {
	a, b := w.rng.IntN(nodes), w.rng.IntN(nodes)
	switch w.rng.IntN(4) {
	case 0: // one direction of one link
		w.net.cut[a][b] = true
	case 1: // one link
		w.net.cut[a][b], w.net.cut[b][a] = true, true
	case 2: // one node, all of it
		for i := range nodes {
			w.net.cut[a][i], w.net.cut[i][a] = true, true
		}
	case 3: // one node's outgoing half
		for i := range nodes {
			w.net.cut[a][i] = true
		}
	}
	w.log("cut", uint64(a), uint64(b))
	w.after(w.between(100, 1800), w.healNetwork)
}

func (w *world) healNetwork() {
	w.log("heal")
	w.net.cut = [nodes][nodes]bool{}
}

// deposeSomething cuts a leader off from its followers in a way that lets its
// clients still reach it.
func (w *world) deposeSomething() {
	s := w.rng.IntN(shards)
	for i, n := range w.nodes {
		if n.up && n.reps[s].core.Leadership().Ready {
			for j := range nodes {
				if j != i {
					w.net.cut[i][j], w.net.cut[j][i] = true, true
				}
			}
			w.log("depose", uint64(i), uint64(s))
			w.after(w.between(900, 1900), w.healNetwork)
			return
		}
	}
}

func (w *world) crashSomething() {
	if w.plan.crashAll && w.rng.IntN(4) == 0 {
		for _, n := range w.nodes {
			n.crash(w.rng.IntN(4) > 0)
		}
		return
	}
	w.nodes[w.rng.IntN(nodes)].crash(w.rng.IntN(4) > 0)
}

func (w *world) transferSomething() {
	w.transfer(w.rng.IntN(shards), w.nodes[w.rng.IntN(nodes)])
}

func (w *world) transfer(s int, to *node) {
	if w.calm {
		return
	}
	for _, n := range w.nodes {
		if n.up && n.reps[s].core.Leadership().Leader == n.id() {
			w.counts.Transfers++
			w.log("transfer", uint64(n.index), uint64(s), uint64(to.index))
			n.reps[s].core.TransferLeader(to.id())
			w.drain(n.reps[s])
		}
	}
}

func (w *world) slowSomething() {
	n := w.nodes[w.rng.IntN(nodes)]
	n.slow = true
	w.log("slow", uint64(n.index))
	w.after(w.between(200, 1500), func() { n.slow = false })
}
