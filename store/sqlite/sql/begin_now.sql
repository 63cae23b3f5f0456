update penstock_subscriptions set position = (select coalesce(max(seq), 0) from {table}) where id = {sub}
