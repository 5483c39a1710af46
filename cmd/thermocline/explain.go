package main

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
)

// refusal is what a broker said no with: one sentence and the code, once.
type refusal struct {
	text string
	code error
}

// Error gives the sentence, and the code that manuals are searched for.
func (r refusal) Error() string {
	var k *kerr.Error
	if errors.As(r.code, &k) {
		return fmt.Sprintf("%s (%s)", r.text, k.Message)
	}
	return r.text
}

// Unwrap gives the code, for errors.Is.
func (r refusal) Unwrap() error { return r.code }

// plainly says in a few words what codes mean to who types commands; the
// protocol's own descriptions are written for clients.
var plainly = map[*kerr.Error]string{
	kerr.UnknownTopicOrPartition: "does not exist",
	kerr.UnknownTopicID:          "does not exist",
	kerr.TopicAlreadyExists:      "exists already",
	kerr.GroupIDNotFound:         "no such group",
	kerr.NonEmptyGroup:           "has members: stop them first",
	kerr.UnknownMemberID:         "has members: stop them first",
	kerr.GroupSubscribedToTopic:  "members of the group read this topic: stop them first",
	kerr.CoordinatorNotAvailable: "no broker coordinates the group yet: try again in a moment",
	kerr.UnsupportedVersion:      "the brokers are too old for this request, or do not serve it",
}

// refused turns a broker's error into a sentence. The broker's own message
// knows more than the code's description, so that one of them is enough.
func refused(err error, message string) error {
	var k *kerr.Error
	if !errors.As(err, &k) {
		if message == "" {
			return err
		}
		return fmt.Errorf("%s: %w", message, err)
	}
	text := strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(message), k.Message+": "), ".")
	if description := strings.TrimSuffix(k.Description, "."); text == "" || text == description {
		text = cmp.Or(plainly[k], description)
	}
	return refusal{text, err}
}

// orUnknown is the refusal of a topic that an answer has an error for, or lacks.
func orUnknown(err error) error {
	if err == nil {
		err = kerr.UnknownTopicOrPartition
	}
	return refused(err, "")
}
