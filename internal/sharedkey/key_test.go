package sharedkey

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestAKeyIsNeverShown(t *testing.T) { // the fingerprint is
	secret := material(40)
	key := newKey(bytes.Clone(secret), "relay-1", 7)
	cfg := valid()
	cfg.Value, cfg.Seal = secret, seals(secret)
	keeper, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	type holder struct{ key Key } // unexported: fmt does not ask its methods
	answer := Answer{Key: key, Retired: []RetiredKey{{Key: key, For: 1}}}
	var shown []string
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%c", "%U"} {
		for _, value := range []any{key, &key, holder{key}, &holder{key}, []Key{key}, map[string]Key{"k": key}, answer, cfg.Value, cfg, keeper, keeper.Status(), peerAnswer{answer: answer}} {
			shown = append(shown, fmt.Sprintf(verb, value))
		}
	}
	var log bytes.Buffer
	for _, handler := range []slog.Handler{slog.NewTextHandler(&log, nil), slog.NewJSONHandler(&log, nil)} {
		slog.New(handler).Info("m", "key", key, "value", cfg.Value, "status", keeper.Status(), "answer", answer)
	}
	shown = append(shown, log.String())
	for _, value := range []any{key, cfg.Value, keeper.Status(), answer, map[string]any{"k": &key}} {
		text, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		shown = append(shown, string(text))
	}
	part := secret[4:12]
	decimal := strings.Trim(fmt.Sprint([]byte(part)), "[]")
	for _, form := range []string{
		string(part), hex.EncodeToString(part), strings.ToUpper(hex.EncodeToString(part)), decimal, strings.ReplaceAll(decimal, " ", ", "),
		base64.StdEncoding.EncodeToString(secret)[:20], strings.Trim(fmt.Sprintf("%#v", []byte(part)), "[]byte{}"), strings.Trim(fmt.Sprintf("%c", []byte(part)), "[]"),
	} {
		for _, text := range shown {
			if strings.Contains(text, form) {
				t.Errorf("%q is in: %s", form, text)
			}
		}
	}
	if got := fmt.Sprintf("%v %s", key, cfg.Value); got != key.Fingerprint()+" [secret]" || len(key.Fingerprint()) != 8 {
		t.Errorf("printed as %q", got)
	}
}

func TestTheZeroKeyIsNoKey(t *testing.T) {
	var none Key
	some := newKey(material(1), "a", 1)
	if !none.IsZero() || none.Fingerprint() != "none" || none.older(some) || !some.older(none) || none.older(none) || none.Equal(some) || !none.Equal(Key{}) {
		t.Fatal("the zero key passes for a key")
	}
	if id, epoch := none.generatedBy(); id != "" || epoch != 0 || none.given() {
		t.Fatal("the zero key has a generator")
	}
}

func TestTheLowestEpochIsTheOldestThenTheLowestIDThenTheLowestDigest(t *testing.T) {
	low, high := newKey(material(1), "b", 5), newKey(material(2), "b", 5)
	if bytes.Compare(low.body().digest[:], high.body().digest[:]) > 0 {
		low, high = high, low
	}
	order := []Key{newKey(material(3), "", 0), newKey(material(4), "z", 4), newKey(material(5), "a", 5), low, high, newKey(material(6), "c", 5)}
	for i, a := range order {
		for j, b := range order {
			if a.older(b) != (i < j) {
				t.Errorf("%d older than %d: %t", i, j, a.older(b))
			}
		}
	}
}

func drawKey(t *rapid.T) Key {
	seed := rapid.ByteRange(0, 11).Draw(t, "key")
	// The stamp belongs to the key, as a generator makes only one.
	return newKey(material(seed), fmt.Sprintf("relay-%d", seed%3), uint64(1+seed%4))
}

func TestRelaysThatLearnTheSameKeysInAnyOrderUseTheSameOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		keys := rapid.SliceOfN(rapid.Custom(drawKey), 1, maxRetired+1).Draw(t, "keys")
		oldest := slices.MinFunc(keys, func(a, b Key) int {
			if a.older(b) {
				return -1
			}
			return 1
		})
		for range 2 {
			var ring keyring
			for _, k := range rapid.Permutation(keys).Draw(t, "order") {
				ring, _ = ring.learn(peerAnswer{answer: Answer{Key: k}, asked: epochZero, now: epochZero, retire: 1})
			}
			if !ring.current.Equal(oldest) {
				t.Fatalf("uses %v, the oldest is %v", ring.current, oldest)
			}
			for _, k := range keys {
				if !ring.knows(k) {
					t.Fatalf("%v was forgotten", k)
				}
			}
			if ring.find(ring.current) >= 0 {
				t.Fatal("the key in use is retired as well")
			}
		}
	})
}
