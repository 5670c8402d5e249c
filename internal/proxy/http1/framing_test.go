package http1

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
)

// A table of RFC 9112 §7.1 with what request smuggling uses: each row is read whole and byte by byte.
func TestChunksAreReadOrRefused(t *testing.T) {
	long := strings.Repeat("x", maxChunkLine)
	for _, c := range []struct {
		input string
		body  string
		left  int // bytes behind the end
		err   error
	}{
		{"5\r\nhello\r\n0\r\n\r\n", "hello", 0, nil},
		{"0\r\n\r\nGET /next", "", 9, nil},
		{"a\r\n0123456789\r\nA\r\n0123456789\r\n0\r\n\r\n", "01234567890123456789", 0, nil},
		{"f\r\n0123456789abcde\r\n00F\r\n0123456789ABCDE\r\n000\r\n\r\n", "0123456789abcde0123456789ABCDE", 0, nil},
		{"9\r\n123456789\r\n12\r\n123456789012345678\r\n0\r\n\r\n", "123456789123456789012345678", 0, nil},
		{"1 \r\na\r\n1\t;x=\"y\"\r\nb\r\n1;\r\nc\r\n0;last\r\n\r\n", "abc", 0, nil},
		{"000000000000001\r\na\r\n0\r\n\r\n", "a", 0, nil},
		{"1\r\na\r\n0\r\nX-A: b\r\nX-C:\r\n\r\n", "a", 0, nil},

		{"", "", 0, io.ErrUnexpectedEOF},
		{"5\r\nhel", "hel", 0, io.ErrUnexpectedEOF},
		{"5\r\nhello", "hello", 0, io.ErrUnexpectedEOF},
		{"5\r\nhello\r\n0\r\n", "hello", 0, io.ErrUnexpectedEOF},
		{"\r\n", "", 0, errChunkLine},
		{"\n", "", 0, errChunkLine},
		{"5\nhello\r\n0\r\n\r\n", "", 0, errChunkLine},
		{"5 \nhello\r\n0\r\n\r\n", "", 0, errChunkLine},
		{"5\rX\nhello\r\n0\r\n\r\n", "", 0, errChunkLine},
		{" 5\r\nhello\r\n", "", 0, errChunkLine},
		{"+5\r\nhello\r\n", "", 0, errChunkLine},
		{"-5\r\nhello\r\n", "", 0, errChunkLine},
		{"0x5\r\nhello\r\n", "", 0, errChunkLine},
		{"g\r\n", "", 0, errChunkLine},
		{"G\r\n", "", 0, errChunkLine},
		{"/\r\n", "", 0, errChunkLine},
		{":\r\n", "", 0, errChunkLine},
		{"`\r\n", "", 0, errChunkLine},
		{"@\r\n", "", 0, errChunkLine},
		{";x\r\n", "", 0, errChunkLine},
		{"5 5\r\nhello\r\n", "", 0, errChunkLine},
		{"5x\r\nhello\r\n", "", 0, errChunkLine},
		{"5;\x00\r\nhello\r\n", "", 0, errChunkLine},
		{"5;a\rb\r\nhello\r\n", "", 0, errChunkLine},
		{"1000000000000000\r\n", "", 0, errChunkLine}, // 64 bits
		{"0000000000000005\r\nhello\r\n", "", 0, errChunkLine},
		{"5\r\nhelloX\n", "hello", 0, errChunkEnd},
		{"5\r\nhello\rX", "hello", 0, errChunkEnd},
		{"5\r\nhello\n0\r\n\r\n", "hello", 0, errChunkEnd},
		{"5\r\nhello0\r\n\r\n", "hello", 0, errChunkEnd},
		{"5;" + long[:maxChunkLine-4] + "\r\nhello\r\n0\r\n\r\n", "hello", 0, nil},
		{"5;" + long[:maxChunkLine-3] + "\r\nhello\r\n0\r\n\r\n", "", 0, errChunkTooLong},
		{long, "", 0, errChunkTooLong},
		{"0\r\nX-A: b\n\r\n", "", 0, ErrBareLF},
		{"0\r\n\n" + long[:100], "", 0, ErrBareLF},
		{"0\r\n" + strings.Repeat("X-A: b\r\n", 4) + "X-A: ", "", 0, io.ErrUnexpectedEOF},
		{"0\r\nX-A: " + long[:100], "", 0, ErrTrailers}, // and its line has not ended
		{"0\r\n X-A: b\r\n\r\n", "", 0, ErrFolded},
		{"0\r\nX A: b\r\n\r\n", "", 0, ErrFieldName},
		{"0\r\nX-A: " + strings.Repeat("y", 100) + "\r\n\r\n", "", 0, ErrTrailers},
	} {
		for _, step := range []int{1, 1 << 20} {
			d := Body{MaxTrailer: 64}
			d.Begin(Chunked, 0)
			body, left, err := readAll(&d, []byte(c.input), step)
			if string(body) != c.body || left != c.left && err == nil && step > 1 || !errors.Is(err, c.err) {
				t.Errorf("%.60q in steps of %d: %q, %d left, %v; want %q, %d, %v", c.input, step, body, left, err, c.body, c.left, c.err)
			}
		}
	}
}

// What a chunk carries pays for its line: extensions, and chunks of a byte, must not cost more than data.
func TestTheOverheadOfChunksIsBounded(t *testing.T) {
	read := func(chunk string, n int) error {
		d := Body{MaxTrailer: 64}
		d.Begin(Chunked, 0)
		_, _, err := readAll(&d, []byte(strings.Repeat(chunk, n)+"0\r\n\r\n"), 1<<20)
		return err
	}
	const extended = "1;"                                // 16 bytes and twice the data are free
	line := extended + strings.Repeat("x", 142) + "\r\n" // a part of the bound
	each := len(line) - 16 - 2
	if most := maxChunkOverhead / each; read(line+"a\r\n", most) != nil || !errors.Is(read(line+"a\r\n", most+1), errChunkOverhead) {
		t.Errorf("%d chunks with an overhead of %d bytes: %v, one more: %v", most, each, read(line+"a\r\n", most), read(line+"a\r\n", most+1))
	}
	if err := read("1\r\na\r\n", 100_000); err != nil {
		t.Errorf("chunks of a byte: %v", err)
	}
}

func TestTrailersAreBoundedAndPassedOn(t *testing.T) {
	for size, want := range map[int]error{0: io.EOF, 1: ErrTrailers} {
		const most = 64
		var got []string
		d := Body{MaxTrailer: most, Trailer: func(name, value []byte) { got = append(got, fmt.Sprintf("%s=%s", name, value)) }}
		d.Begin(Chunked, 0)
		first := "X-A:  b \r\n"
		second := "X-B: " + strings.Repeat("y", most-len(first)-len("X-B: \r\n")-2+size) + "\r\n"
		_, _, err := d.Next([]byte("0\r\n" + first + second + "\r\n"))
		if err != want || len(got) == 0 || got[0] != "X-A=b" || want == io.EOF && (len(got) != 2 || d.Kind() != NoBody) {
			t.Errorf("%d bytes more: %v, %q", size, err, got)
		}
	}
}

func TestABodyOfALengthEndsThereAndOneWithoutAtTheEndOfTheConnection(t *testing.T) {
	for _, c := range []struct {
		kind       Kind
		length     int64
		input      string
		body       string
		left       int
		incomplete bool
	}{
		{Length, 5, "hello", "hello", 0, false},
		{Length, 5, "helloGET", "hello", 3, false},
		{Length, 5, "hel", "hel", 0, true},
		{Length, 0, "GET", "", 3, false},
		{NoBody, 5, "GET", "", 3, false},
		{ToClose, 0, "all of it", "all of it", 0, false},
	} {
		var d Body
		d.Begin(c.kind, c.length)
		body, left, err := readAll(&d, []byte(c.input), 1<<20)
		if string(body) != c.body || left != c.left || (err != nil) != c.incomplete {
			t.Errorf("%v of %d, %q: %q, %d left, %v", c.kind, c.length, c.input, body, left, err)
		}
	}
}

// Bytes that are read without a buffer in between are reported by Skip.
func TestDataThatIsReadDirectlyCounts(t *testing.T) {
	var d Body
	d.Begin(Length, 5)
	if d.Direct() != 5 {
		t.Errorf("of a length: %d", d.Direct())
	}
	if d.Skip(5); d.Direct() != 0 {
		t.Errorf("after all of it: %d", d.Direct())
	}
	if _, _, err := d.Next(nil); err != io.EOF {
		t.Error(err)
	}
	d.MaxTrailer = 64
	d.Begin(Chunked, 0)
	if d.Direct() != 0 {
		t.Errorf("before the size of a chunk: %d", d.Direct())
	}
	if data, used, err := d.Next([]byte("5\r\nhe")); string(data) != "he" || used != 5 || err != nil || d.Direct() != 3 {
		t.Fatalf("%q, %d, %v, %d", data, used, err, d.Direct())
	}
	if d.Skip(2); d.Direct() != 1 {
		t.Errorf("within a chunk: %d", d.Direct())
	}
	if d.Skip(1); d.Direct() != 0 {
		t.Errorf("after a chunk: %d", d.Direct())
	}
	if _, used, err := d.Next([]byte("\r\n0\r\n\r\n")); err != io.EOF || used != 7 {
		t.Errorf("%d, %v", used, err)
	}
}

func TestALineIsAFieldOrRefused(t *testing.T) {
	for line, want := range map[string]string{
		"A: b": "A=b", "A:b": "A=b", "A:": "A=", "A: \t ": "A=", "A:\tb\t": "A=b", "A: b ": "A=b", "A:  b c  ": "A=b c", "!#$%&'*+-.^_`|~09azAZ: x": "!#$%&'*+-.^_`|~09azAZ=x",
		"A: \x80\xff": "A=\x80\xff", "A: b\tc": "A=b\tc",
		" A: b": "", "\tA: b": "", ": b": "", "A": "", "A b: c": "", "A : b": "", "A\t: b": "", "A(: b": "", "A: b\x00": "", "A: b\rc": "", "A: b\x7f": "", "A: \x1f": "",
	} {
		f, err := ParseField(line)
		if folded := line[0] == ' ' || line[0] == '\t'; folded != (err == ErrFolded) {
			t.Errorf("%q: %v", line, err)
		}
		if got := ""; err == nil {
			if got = line[f.Name:f.NameEnd] + "=" + line[f.Value:f.ValueEnd]; got != want {
				t.Errorf("%q: %q, want %q", line, got, want)
			}
		} else if want != "" {
			t.Errorf("%q: %v", line, err)
		}
	}
}

func TestALengthHasOnlyDigits(t *testing.T) {
	for v, want := range map[string]int64{
		"0": 0, "7": 7, "42": 42, "007": 7, "10203": 10203, "999999999999999999": 999_999_999_999_999_999,
		"": -1, "1000000000000000000": -1, "-1": -1, "+1": -1, " 1": -1, "1 ": -1, "1,1": -1, "0x1": -1, "1e3": -1, "/": -1, ":": -1,
	} {
		if n, ok := ParseLength(v); ok != (want >= 0) || ok && n != want {
			t.Errorf("%q: %d, %t", v, n, ok)
		}
	}
}

func TestOnlyTheCaseOfLettersIsIgnored(t *testing.T) {
	for a, b := range map[string]string{"": "", "close": "CLOSE", "Keep-Alive": "kEEP-aLIVE", "az09": "AZ09", "azAZ": "AZaz"} {
		if !EqualFold(a, b) {
			t.Errorf("%q and %q differ", a, b)
		}
	}
	for _, pair := range [][2]string{{"a", ""}, {"a", "b"}, {"a", "aa"}, {"[", "{"}, {"@", "`"}, {"^", "~"}, {"\x00", " "}, {"k", "\x4b\x80"}, {"A", "!"}, {"z", "\x5b"}} {
		if EqualFold(pair[0], pair[1]) || EqualFold(pair[1], pair[0]) {
			t.Errorf("%q and %q are equal", pair[0], pair[1])
		}
	}
	for list, want := range map[string]bool{"close": true, "keep-alive, Close": true, "a,\tclose ": true, "": false, "closed": false, "a close": false, "a;close": false} {
		if HasToken(list, "close") != want || AnyHasToken([]string{"x", list}, "close") != want {
			t.Errorf("%q: %t", list, !want)
		}
	}
}

func TestAHeadEndsAtAnEmptyLine(t *testing.T) {
	for head, want := range map[string]struct {
		n   int
		err error
	}{
		"GET / HTTP/1.1\r\nA: b\r\n\r\nrest": {24, nil}, "GET / HTTP/1.1\r\n\r\n": {18, nil}, "GET / HTTP/1.1\r\nA: b\r\n": {0, nil}, "\r\n": {2, nil}, "": {0, nil},
		"GET / HTTP/1.1\nA: b\r\n\r\n": {0, ErrBareLF}, "GET / HTTP/1.1\r\nA: b\n\r\n": {0, ErrBareLF}, "GET / HTTP/1.1\r\n\n": {0, ErrBareLF}, "\n": {0, ErrBareLF},
	} {
		n, from := 0, 0
		var err error
		for i := 1; i <= len(head) && n == 0 && err == nil; i++ { // as its bytes arrive
			n, from, err = HeadEnd([]byte(head[:i]), from)
		}
		if n != want.n || n > 0 && from != n || err != want.err {
			t.Errorf("%q: %d, %v; want %d, %v", head, n, err, want.n, want.err)
		}
	}
}

func TestTokensTargetsAndValuesHaveOnlyTheirBytes(t *testing.T) {
	const separators = "\"(),/:;<=>?@[\\]{} \t"
	for c := range 256 {
		s := string([]byte{'a', byte(c), 'z'})
		control, high := c < ' ' || c == 0x7f, c >= 0x80
		for _, row := range []struct {
			what      string
			got, want bool
		}{
			{"token", ValidToken(s), !control && !high && !strings.ContainsRune(separators, rune(c))},
			{"target", ValidTarget(s), !control && c != ' '},
			{"value", ValidValue(s), !control || c == '\t'},
		} {
			if row.got != row.want {
				t.Errorf("%q as a %s: %t", s, row.what, row.got)
			}
		}
	}
	if ValidToken("") {
		t.Error("nothing is no token")
	}
}
