select epoch = {epoch} from {schema}.subscriptions where id = {sub} for update
