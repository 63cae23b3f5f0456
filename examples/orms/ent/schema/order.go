// Package schema is what ent generates its client from: see ../main.go.
package schema

import (
	"entgo.io/ent"
	"entgo.io/ent/dialect/entsql"
	"entgo.io/ent/schema"
	"entgo.io/ent/schema/field"
)

// Order is a row of shop_order.
type Order struct{ ent.Schema }

// Annotations name the table.
func (Order) Annotations() []schema.Annotation {
	return []schema.Annotation{entsql.Table("shop_order")}
}

// Fields are its columns, except id.
func (Order) Fields() []ent.Field {
	return []ent.Field{field.String("customer"), field.Int("total")}
}
