package sharedkey

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
)

func TestAnAnswerArrivesAsItWasSent(t *testing.T) {
	sent := Answer{
		Key:     newKey(material(1), "relay-1", math.MaxUint64),
		Retired: []RetiredKey{{newKey(material(2), "", 0), time.Hour}, {newKey(bytes.Repeat(material(3), 16), "relay-2", 3), math.MaxInt64}},
	}
	body, err := encodeAnswer("shop/prod", sent)
	if err != nil {
		t.Fatal(err)
	}
	got, err := decodeAnswer("shop/prod", body)
	if err != nil {
		t.Fatal(err)
	}
	id, epoch := got.Key.generatedBy()
	if !got.Key.Equal(sent.Key) || id != "relay-1" || epoch != math.MaxUint64 || len(got.Retired) != 2 {
		t.Fatalf("got %+v", got)
	}
	for i, r := range got.Retired {
		if !r.Key.Equal(sent.Retired[i].Key) || sent.Retired[i].For-r.For >= time.Millisecond || r.For > sent.Retired[i].For {
			t.Errorf("retired %d: %v for %v", i, r.Key, r.For)
		}
	}
}

func TestTheLargestAnswerFits(t *testing.T) {
	large := func(seed byte) Key {
		return newKey(bytes.Repeat(material(seed), maxSecret/minSecret), strings.Repeat("\"", maxGenerator), math.MaxUint64)
	}
	a := Answer{Key: large(0)}
	for i := range maxRetired {
		a.Retired = append(a.Retired, RetiredKey{large(byte(i + 1)), math.MaxInt64})
	}
	body, err := encodeAnswer(strings.Repeat("x", 600), a)
	if err != nil {
		t.Fatal(err)
	}
	body, err = seal(material(1), "", make([]byte, nonceBytes), body)
	if err != nil || len(body) > maxAnswer {
		t.Fatalf("%d bytes, at most %d are read; %v", len(body), maxAnswer, err)
	}
}

func TestNoKeyYetIsTheOnlyAnswerThatMeansIt(t *testing.T) {
	body, err := encodeAnswer("l", Answer{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := decodeAnswer("l", body); !errors.Is(err, ErrNoKey) {
		t.Fatalf("error %v", err)
	}
	if _, err := decodeAnswer("other", body); !errors.Is(err, ErrForeign) {
		t.Fatalf("of another cluster: %v", err)
	}
}

func TestWhatIsNotAnAnswerIsRefusedAndNotQuoted(t *testing.T) {
	good := strings.Repeat("c0ffee11", 8)
	stamp := `,"epoch":1,"generated_by":"r"`
	for name, body := range map[string]string{
		"empty":              ``,
		"HTML":               `<html>404</html>`,
		"other JSON":         `{"error":"no key yet"}`,
		"other format":       `{"format":2,"key":{"material":"` + good + `"` + stamp + `}}`,
		"neither":            `{"format":1}`,
		"other error":        `{"format":1,"error":"busy"}`,
		"short key":          `{"format":1,"key":{"material":"c0ffee11"` + stamp + `}}`,
		"long key":           `{"format":1,"key":{"material":"` + strings.Repeat(good, 17) + `"` + stamp + `}}`,
		"not hex":            `{"format":1,"key":{"material":"` + good[:63] + `z"` + stamp + `}}`,
		"odd hex":            `{"format":1,"key":{"material":"` + good + `a"` + stamp + `}}`,
		"a number":           `{"format":1,"key":{"material":12345678901234567890` + stamp + `}}`,
		"epoch only":         `{"format":1,"key":{"material":"` + good + `","epoch":1}}`,
		"id only":            `{"format":1,"key":{"material":"` + good + `","generated_by":"r"}}`,
		"negative epoch":     `{"format":1,"key":{"material":"` + good + `","epoch":-1,"generated_by":"r"}}`,
		"long id":            `{"format":1,"key":{"material":"` + good + `","epoch":1,"generated_by":"` + strings.Repeat("x", 256) + `"}}`,
		"line end in the id": `{"format":1,"key":{"material":"` + good + `","epoch":1,"generated_by":"a\nb"}}`,
		"bad retired key":    `{"format":1,"key":{"material":"` + good + `"` + stamp + `},"retired":[{"material":"ab"` + stamp + `,"expires_in_ms":1}]}`,
		"negative time":      `{"format":1,"key":{"material":"` + good + `"` + stamp + `},"retired":[{"material":"` + good + `"` + stamp + `,"expires_in_ms":-1}]}`,
		"too many retired":   `{"format":1,"key":{"material":"` + good + `"` + stamp + `},"retired":[` + strings.Repeat(`{},`, 8) + `{}]}`,
		"two documents":      `{"format":1,"error":"no key yet"}{}`,
	} {
		t.Run(name, func(t *testing.T) {
			_, err := decodeAnswer("", []byte(body))
			if !errors.Is(err, ErrMalformed) {
				t.Fatalf("error %v", err)
			}
			if strings.Contains(err.Error(), "c0ffee") || strings.Contains(err.Error(), "1234567") {
				t.Fatalf("the error quotes the key: %v", err)
			}
		})
	}
}

func TestUnknownFieldsAreSkipped(t *testing.T) {
	body := fmt.Sprintf(`{"format":1,"later":[{}],"key":{"material":"%x","epoch":1,"generated_by":"r","later":{}}}`, material(1))
	if _, err := decodeAnswer("", []byte(body)); err != nil {
		t.Fatal(err)
	}
}

// FuzzDecodeAnswer holds that no bytes make the decoder panic, fail without one of
// its errors, or return a key that cannot be sent on.
func FuzzDecodeAnswer(f *testing.F) {
	for _, a := range []Answer{{}, {Key: newKey(material(1), "relay-1", 5)}, {Key: newKey(material(1), "", 0), Retired: []RetiredKey{{newKey(material(2), "r", 1), time.Hour}}}} {
		body, err := encodeAnswer("l", a)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(body)
	}
	f.Add([]byte(`{"format":1,"key":null,"retired":[null]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		a, err := decodeAnswer("l", data)
		if err != nil {
			if !errors.Is(err, ErrNoKey) && !errors.Is(err, ErrMalformed) && !errors.Is(err, ErrForeign) {
				t.Fatalf("untyped error %v", err)
			}
			return
		}
		if n := len(a.Key.body().material); n < minSecret || n > maxSecret || len(a.Retired) > maxRetired {
			t.Fatalf("a key of %d bytes, %d retired", n, len(a.Retired))
		}
		body, err := encodeAnswer("l", a)
		if err != nil {
			t.Fatal(err)
		}
		again, err := decodeAnswer("l", body)
		if err != nil || !again.Key.Equal(a.Key) || len(again.Retired) != len(a.Retired) {
			t.Fatalf("not the same after another trip: %v", err)
		}
	})
}

// FuzzUnseal holds that nothing but what was sealed opens.
func FuzzUnseal(f *testing.F) {
	nonce := make([]byte, nonceBytes)
	body, err := seal(material(1), "l", nonce, []byte("plain"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(body)
	f.Fuzz(func(t *testing.T, data []byte) {
		plain, err := unseal(material(1), "l", nonce, data)
		if err == nil && string(plain) != "plain" || err != nil && !errors.Is(err, ErrMalformed) {
			t.Fatalf("%q, %v", plain, err)
		}
	})
}
