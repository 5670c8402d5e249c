package session

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
)

var (
	helloBytes = Hello{Epoch: 1790000000000, Cluster: "shop", Environment: "prod", ID: "w1", Datacenter: "fra1", Region: "eu", Version: "v1.2.3"}
	rowBytes   = Row{Version: 7, Self: "r1", Epoch: 5, Size: 1, Relays: []RowRelay{{"r1", 5, "10.0.0.1:7420"}, {"r2", 6, "10.0.0.2:7420"}}}
)

func TestWhatIsSentIsRead(t *testing.T) {
	if h, err := DecodeHello(helloBytes.Encode()); err != nil || h != helloBytes {
		t.Errorf("%+v %v", h, err)
	}
	if row, err := DecodeRow(rowBytes.Encode()); err != nil || !reflect.DeepEqual(row, rowBytes) {
		t.Errorf("%+v %v", row, err)
	}
	refusal := &Refusal{Code: "record", Text: "not yours"}
	if r, err := DecodeRefusal(refusal.Encode()); err != nil || *r != *refusal {
		t.Errorf("%+v %v", r, err)
	}
	later := append(helloBytes.Encode(), 3, 'n', 'e', 'w')
	if h, err := DecodeHello(later); err != nil || h != helloBytes {
		t.Errorf("a field of a later release: %+v %v", h, err)
	}
}

// The page docs/reference/session-protocol.md has these bytes.
func TestTheBytesOfAHelloAreThoseOfThePage(t *testing.T) {
	want := "\x01\x00\x00\x25" + "\x01" + "\x00\x00\x01\xa0\xc4\xfb\x0c\x00" + "\x04shop" + "\x04prod" + "\x02w1" + "\x04fra1" + "\x02eu" + "\x06v1.2.3"
	h := helloBytes
	h.Epoch = 0x1a0c4fb0c00
	if got := AppendFrame(nil, KindHello, h.Encode()); string(got) != want {
		t.Errorf("%q\nwant %q", got, want)
	}
}

func TestWhatCannotBeRightIsRefused(t *testing.T) {
	long := Row{Self: "r1"}
	for range maxRow + 1 {
		long.Relays = append(long.Relays, RowRelay{ID: "r", Address: "a:1"})
	}
	if row, err := DecodeRow(long.Encode()); err != nil || len(row.Relays) != maxRow {
		t.Errorf("a longer row is not cut: %d relays, %v", len(row.Relays), err)
	}
	for name, err := range map[string]error{
		"another format":           second(DecodeHello([]byte{2})),
		"no id":                    second(DecodeHello(Hello{Epoch: 1, Cluster: "c", Environment: "e"}.Encode())),
		"no epoch":                 second(DecodeHello(Hello{ID: "w1"}.Encode())),
		"control characters":       second(DecodeHello(Hello{Epoch: 1, ID: "w1", Version: "\x1b[2J"}.Encode())),
		"an id that is no name":    second(DecodeHello(Hello{Epoch: 1, ID: "w 1/.."}.Encode())),
		"a row of no relay":        second(DecodeRow(Row{}.Encode())),
		"a row larger than itself": second(DecodeRow([]byte("\x00\x00\x00\x00\x00\x00\x00\x01\x02r1\x00\x00\x00\x00\x00\x00\x00\x01\x05\x00"))),
	} {
		if err == nil {
			t.Errorf("%s is taken", name)
		}
	}
	if _, _, err := ReadFrame(strings.NewReader("\x01\xff\xff\xff"), MaxHello); err == nil || !strings.Contains(err.Error(), "at most") {
		t.Errorf("a frame of 16 MB: %v", err)
	}
}

func second[T any](_ T, err error) error { return err }

func FuzzDecodeHello(f *testing.F) {
	f.Add(helloBytes.Encode())
	f.Add([]byte{1})
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := DecodeHello(b)
		if err != nil {
			return
		}
		if again, err := DecodeHello(h.Encode()); err != nil || again != h {
			t.Errorf("%+v becomes %+v: %v", h, again, err)
		}
	})
}

func FuzzDecodeRow(f *testing.F) {
	f.Add(rowBytes.Encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		row, err := DecodeRow(b)
		if err != nil {
			return
		}
		if again, err := DecodeRow(row.Encode()); err != nil || !reflect.DeepEqual(again, row) {
			t.Errorf("%+v becomes %+v: %v", row, again, err)
		}
	})
}

func FuzzDecodeRefusal(f *testing.F) {
	f.Add((&Refusal{Code: "cluster", Text: "no"}).Encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		if r, err := DecodeRefusal(b); err == nil && strings.ContainsAny(r.Error(), "\x1b\r\n") {
			t.Errorf("%q", r.Error())
		}
	})
}

func FuzzReadFrame(f *testing.F) {
	f.Add(AppendFrame(nil, KindBeat, []byte("abc")), 10)
	f.Fuzz(func(t *testing.T, b []byte, limit int) {
		kind, payload, err := ReadFrame(bytes.NewReader(b), limit)
		if err == nil && (len(payload) > limit || !bytes.HasPrefix(b, AppendFrame(nil, kind, payload))) {
			t.Errorf("%d %q of %q", kind, payload, b)
		}
	})
}
