delete from {schema}.progress where subscription_id = {sub} and (epoch, attempt) in ({pairs})
