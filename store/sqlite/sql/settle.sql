update penstock_subscriptions
   set position = {position}, ahead = {ahead}, settles = {attempt}, settled = settled + {n},
       rate = rate * exp(min(rate_at - {clock}, 0) / 60000000.0) + {n} / 60.0, rate_at = {clock}
 where id = {sub} and epoch = {epoch} and holder = {holder} and settles < {attempt} and settles >= {known}
