package metadata

import (
	"errors"
	"strings"
	"testing"
)

func TestTopicNamesAreRefusedByTheCharacter(t *testing.T) {
	for name, want := range map[string]string{
		"ümläut":  "found 'ü' at byte 0",
		"a b":     "found ' ' at byte 1",
		"a\xffb":  "found byte 0xff at byte 1",
		"a\ufffd": "found '\ufffd' at byte 1",
		"a\n":     `found '\n' at byte 1`,
		"..":      "cannot be",
	} {
		if err := CheckTopicName(name); !errors.Is(err, ErrInvalidTopic) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "metadata") {
			t.Errorf("%q: expected %q, found %v", name, want, err)
		}
	}
	if err := CheckTopicName("a-Z_0.9"); err != nil {
		t.Error(err)
	}
}
