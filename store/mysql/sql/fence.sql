select epoch = {epoch} and holder = {holder} from {schema}.subscriptions where id = {sub} for update
