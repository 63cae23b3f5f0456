select flights from demo.aircraft where tailnum = ?
