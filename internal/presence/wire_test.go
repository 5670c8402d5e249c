package presence

import (
	"net/netip"
	"reflect"
	"testing"
)

func worker(id string, epoch, sequence uint64) listed {
	return listed{instance: instance{id, epoch}, host: netip.MustParseAddr("10.0.0.5"), datacenter: "fra1", region: "eu", version: "v1", draining: true, key: keyID{1, 2, 3}, sequence: sequence}
}

func TestWhatRelaysSendIsRead(t *testing.T) {
	c := change{sequence: 9, more: true, listed: []listed{worker("w1", 1, 2), worker("w2", 3, 4)}, gone: []gone{{instance{"w3", 5}, true}, {instance{"w4", 6}, false}}}
	if got, err := decodeChange(c.encode()); err != nil || !reflect.DeepEqual(got, c) {
		t.Errorf("%+v %v", got, err)
	}
	p := proof{instance{"w1", 1}, [][]byte{[]byte("leaf"), []byte("between")}, []byte("record")}
	if got, err := decodeProof(p.encode()); err != nil || !reflect.DeepEqual(got, p) {
		t.Errorf("%+v %v", got, err)
	}
	wanted := []instance{{"w1", 1}, {"w2", 2}}
	if got, err := decodeWant(encodeWant(wanted)); err != nil || !reflect.DeepEqual(got, wanted) {
		t.Errorf("%+v %v", got, err)
	}
	if sequence, hash, err := decodeBeat(encodeBeat(3, 4)); err != nil || sequence != 3 || hash != 4 {
		t.Errorf("%d %d %v", sequence, hash, err)
	}
}

func TestTheLongestFramesFit(t *testing.T) {
	name := func(n int) string { return string(make([]byte, n)) }
	w := worker(name(255), 1, 1)
	w.datacenter, w.region, w.version = name(255), name(255), name(255)
	if n := len(w.append(nil)); n > maxListed {
		t.Errorf("a worker takes %d bytes, %d are expected", n, maxListed)
	}
	full := change{listed: make([]listed, listedPerFrame), gone: make([]gone, listedPerFrame)}
	for i := range listedPerFrame {
		full.listed[i], full.gone[i] = w, gone{w.instance, true}
	}
	if n := len(full.encode()); n > maxChange {
		t.Errorf("a change takes %d bytes, %d are read", n, maxChange)
	}
}

func FuzzDecodeChange(f *testing.F) {
	f.Add(change{sequence: 1, listed: []listed{worker("w1", 1, 2)}, gone: []gone{{instance{"w2", 1}, true}}}.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := decodeChange(b)
		if err != nil {
			return
		}
		if again, err := decodeChange(c.encode()); err != nil || !reflect.DeepEqual(again, c) {
			t.Errorf("%+v becomes %+v: %v", c, again, err)
		}
	})
}

func FuzzDecodeProof(f *testing.F) {
	f.Add(proof{instance{"w1", 1}, [][]byte{[]byte("leaf")}, []byte("record")}.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := decodeProof(b)
		if err == nil && len(p.chain) > maxChain {
			t.Errorf("%d certificates", len(p.chain))
		}
	})
}

func FuzzDecodeWant(f *testing.F) {
	f.Add(encodeWant([]instance{{"w1", 1}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if wanted, err := decodeWant(b); err == nil && len(wanted) > wantedPerFrame {
			t.Errorf("%d wanted", len(wanted))
		}
	})
}

func FuzzDecodeBeat(f *testing.F) {
	f.Add(encodeBeat(1, 2))
	f.Fuzz(func(t *testing.T, b []byte) { _, _, _ = decodeBeat(b) })
}
