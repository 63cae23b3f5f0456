package measure

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// Valid refuses a value out of the range of its field, and what the configuration itself does.
func Valid(settings any) error {
	v := reflect.ValueOf(settings).Elem()
	for i := range v.NumField() {
		field, all := v.Type().Field(i), v.Field(i)
		low, high, found := strings.Cut(field.Tag.Get("range"), "..")
		if all.Kind() != reflect.Slice {
			all = reflect.Append(reflect.New(reflect.SliceOf(all.Type())).Elem(), all)
		}
		expected := low + " to " + high
		if high == "" {
			expected = low + " or more"
		}
		for _, value := range all.Seq2() {
			if found && (value.Int() < bound(low) || high != "" && value.Int() > bound(high)) {
				return fmt.Errorf("--%s is %v, expected %s", FlagName(field.Name), value, expected)
			}
		}
	}
	if own, ok := settings.(interface{ Validate() error }); ok {
		return own.Validate()
	}
	return nil
}

func bound(text string) int64 {
	d, err := time.ParseDuration(text)
	if err == nil {
		return int64(d)
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		panic(err)
	}
	return n
}

// FlagName is retry-max for RetryMax.
func FlagName(field string) string {
	var name strings.Builder
	for i, r := range field {
		if i > 0 && r < 'a' {
			name.WriteByte('-')
		}
		name.WriteRune(r)
	}
	return strings.ToLower(name.String())
}
